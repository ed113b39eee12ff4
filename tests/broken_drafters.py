"""Folders of the bundled pair, each broken in one way, and what the doctor says of them.

``python -m tests.broken_drafters`` breaks every one and prints a table; the last one is trained, which takes minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from d2sd.bench.prompts import read_prompts
from d2sd.cli.doctor import load_checked
from d2sd.config import DecodeConfig
from d2sd.doctor.examination import TOKENS, Examination, examine
from d2sd.doctor.texts import Text, write
from d2sd.models.loading import BUNDLED, load_models
from d2sd.models.models import Models

TINY = BUNDLED / "tiny"
Config = dict[str, Any]
Weights = dict[str, torch.Tensor]


def copied(
    out: Path, config: Callable[[Config], Config] = dict, weights: Callable[[Weights], Weights] = dict,
    part: str = "dflash",
) -> Path:  # fmt: skip
    """A bundled drafter with another config, or with other weights."""
    out.mkdir(parents=True)
    (out / "config.json").write_text(json.dumps(config(json.loads((TINY / part / "config.json").read_text()))))
    save_file(weights(load_file(TINY / part / "model.safetensors")), out / "model.safetensors")
    return out


def inner(**changed: Any) -> Callable[[Config], Config]:
    return lambda c: {**c, "dflash_config": {**c["dflash_config"], **changed}}


def outer(**changed: Any) -> Callable[[Config], Config]:
    return lambda c: {**c, **changed}


def rope(base: float) -> Callable[[Config], Config]:
    return outer(rope_parameters={"rope_theta": base, "rope_type": "default"})


def window(width: int) -> Callable[[Config], Config]:
    return outer(layer_types=["sliding_attention"] * 3, sliding_window=width, use_sliding_window=True)


def flat(c: Config) -> Config:
    """The same keys in the layout whose rows read next."""
    return {**{k: v for k, v in c.items() if k != "dflash_config"}, **c["dflash_config"]}


def shuffled(layer: int) -> Callable[[Weights], Weights]:
    def change(weights: Weights) -> Weights:
        generator = torch.Generator().manual_seed(layer)
        for name, w in weights.items():
            if name.startswith(f"layers.{layer}."):
                weights[name] = w.flatten()[torch.randperm(w.numel(), generator=generator)].view_as(w).clone()
        return weights

    return change


def renamed(old: str, new: str) -> Callable[[Weights], Weights]:
    return lambda w: {new if k == old else k: v for k, v in w.items()}


def rounded(out: Path, bits: int = 8) -> Path:
    """The bundled target with every matrix of its layers on a grid, row by row."""
    shutil.copytree(TINY / "target", out)
    for path in out.glob("*.safetensors"):
        weights = load_file(path)
        for name, w in weights.items():
            if name.startswith("model.layers.") and w.dim() == 2:
                step = w.float().abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
                weights[name] = ((w.float() / step).round() * step).to(w.dtype)
        save_file(weights, path, {"format": "pt"})
    return out


def templated(out: Path, template: str) -> Path:
    """The bundled target with a chat template that it never saw."""
    shutil.copytree(TINY / "target", out)
    path = out / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
    return out


INSTRUCT = "{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}"


@dataclass(frozen=True)
class Broken:
    """One way: the cause that is to be named, what breaks the drafter or the target, and whether prompts stand in a template."""

    cause: str
    drafter: Callable[[Path], Path] = lambda out: TINY / "dflash"
    target: Callable[[Path], Path] | None = None
    chat: bool = False


WAYS = {
    "taps + 1": Broken("taps", lambda out: copied(out, inner(target_layer_ids=[2, 5, 8, 11, 14]))),
    "a tap missing": Broken("taps", lambda out: copied(out, inner(target_layer_ids=[1, 4, 10, 13]))),
    "mask token": Broken("mask", lambda out: copied(out, inner(mask_token_id=77))),
    "RoPE base": Broken("rope", lambda out: copied(out, rope(1e6))),
    "a window": Broken("window", lambda out: copied(out, window(24))),
    "fill as next": Broken("reads", lambda out: copied(out, flat)),
    "template": Broken("template", target=lambda out: templated(out, INSTRUCT), chat=True),
    "8 bits": Broken("rounding", target=rounded),
    "shuffled layer": Broken("weights", lambda out: copied(out, weights=shuffled(1))),
    "misnamed tensor": Broken(
        "tensors",
        lambda out: copied(
            out, weights=renamed("layers.1.self_attn.q_proj.weight", "layers.1.self_attn.query_proj.weight")
        ),
    ),
    "γ": Broken("rows", lambda out: copied(out, outer(block_size=8))),
}
OTHERS = {
    "taps − 1": Broken("taps", lambda out: copied(out, inner(target_layer_ids=[0, 3, 6, 9, 12]))),
    "taps reversed": Broken("taps", lambda out: copied(out, inner(target_layer_ids=[13, 10, 7, 4, 1]))),
    "mask = end": Broken("mask", lambda out: copied(out, inner(mask_token_id=0))),
    "RoPE base 30000": Broken("rope", lambda out: copied(out, rope(30000.0))),
    "window 40": Broken("window", lambda out: copied(out, window(40))),
    "4 bits": Broken("rounding", target=lambda out: rounded(out, 4)),
    "shuffled layer 0": Broken("weights", lambda out: copied(out, weights=shuffled(0))),
    "shuffled layer 2": Broken("weights", lambda out: copied(out, weights=shuffled(2))),
    "γ 24": Broken("rows", lambda out: copied(out, outer(block_size=24))),
    "γ 12": Broken("rows", lambda out: copied(out, outer(block_size=12))),
}
SOUND = {
    "sound": Broken("none"),
    "sound dspark": Broken("none", lambda out: TINY / "dspark"),
    "sound eagle3": Broken("none", lambda out: TINY / "eagle3"),
}


class Ward:
    """Examines broken folders over the same prompts; what a target writes is kept as long as the target is the bundled one."""

    def __init__(self, prompts: int):
        self.prompts = [p.text for p in read_prompts("heldout", prompts)]
        self.models = Models(load_models("tiny").target)
        self._texts: list[Text] = []

    def examine(self, way: Broken, folder: Path) -> Examination:
        drafter = way.drafter(folder / "drafter")
        models, texts = self.models, self._texts
        if way.target is not None:
            models = Models(load_models(target=str(way.target(folder / "target"))).target)
            texts = []
        found = Examination(str(drafter), models.target.name, [])
        engine = load_checked(models, None, found)
        if engine is None:
            return found
        config = DecodeConfig("autoregressive", TOKENS, chat=way.chat)
        if way.target is None and not texts:
            ids = [engine.encode(p, config) for p in self.prompts]
            texts = self._texts = write(models.target, ids, TOKENS)
        for _ in examine(engine, self.prompts, config, found, texts):
            pass
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=30)
    parser.add_argument("--only", default="")
    parser.add_argument("--trained", type=Path, help="folder of a drafter that was trained for 50 steps")
    arguments = parser.parse_args()
    ways = {**SOUND, **WAYS, **OTHERS}
    if arguments.trained:
        ways["50 steps"] = Broken("training", lambda out: arguments.trained)
    ward, right = Ward(arguments.prompts), 0
    ways = {k: w for k, w in ways.items() if not arguments.only or k in arguments.only.split(",")}
    for name, way in ways.items():
        began = time.process_time()
        with TemporaryDirectory() as folder:
            found = ward.examine(way, Path(folder))
        said = found.diagnosis
        assert said is not None
        right += said.cause == way.cause
        mark = "right" if said.cause == way.cause else f"WRONG, not {way.cause}"
        print(
            f"{name}: {said.cause} ({mark}), {time.process_time() - began:.0f} s of CPU\n  {said.said}\n  {said.mend}",
            flush=True,
        )
    print(f"{right} of {len(ways)}")


if __name__ == "__main__":
    main()
