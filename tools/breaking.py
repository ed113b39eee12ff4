"""Functions that break a bundled drafter or its target: edits of configs and weights, and folders with these edits."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from d2sd.doctor.asked import VISIBLE
from d2sd.folders.loading import load_target
from d2sd.folders.model_sets import BUNDLED
from d2sd.nets.drafter import DFlashDraftModel, drafter_config, start_from_target

TINY = BUNDLED / "tiny"
Config = dict[str, Any]
Weights = dict[str, torch.Tensor]


def copied(
    out: Path, config: Callable[[Config], Config] = dict, weights: Callable[[Weights], Weights] = dict,
    part: str = "dflash",
) -> Path:  # fmt: skip
    """Writes a bundled drafter with a changed config or changed weights. Returns its folder ``out``.

    config, weights: functions that return the changed config or weights.
    part: folder of the bundled drafter, such as "dflash" or "vp".
    """
    out.mkdir(parents=True)
    raw = json.loads((TINY / part / "config.json").read_bytes())
    (out / "config.json").write_text(json.dumps(config(raw)), encoding="utf-8")
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
    """Returns the config in the flat layout, in which a row of a block predicts the token at the next position."""
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
    """Writes the bundled target with every matrix of its layers rounded to ``bits`` bits, with one scale per row."""
    shutil.copytree(TINY / "target", out)
    for path in out.glob("*.safetensors"):
        weights = load_file(path)
        for name, w in weights.items():
            if name.startswith("model.layers.") and w.dim() == 2:
                step = w.float().abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
                weights[name] = ((w.float() / step).round() * step).to(w.dtype)
        save_file(weights, path, {"format": "pt"})
    return out


def sharded(folder: Path, count: int) -> Path:
    """Adds a copy of a folder's weights to it, as ``count`` shards with an index. The original file is kept."""
    held = load_file(folder / "model.safetensors")
    files = {name: f"model-{n % count + 1:05d}-of-{count:05d}.safetensors" for n, name in enumerate(sorted(held))}
    for file in sorted(set(files.values())):
        save_file({n: w for n, w in held.items() if files[n] == file}, folder / file, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}), encoding="utf-8")
    return folder


def templated(out: Path, template: str) -> Path:
    """Writes the bundled target with a chat template that it was not trained with."""
    shutil.copytree(TINY / "target", out)
    path = out / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "chat_template": template}), encoding="utf-8")
    return out


INSTRUCT = "{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}"


@dataclass(frozen=True)
class Broken:
    """A way to break a drafter or its target.

    causes: names of the causes that the doctor may report without a reference, separated by spaces. Reporting no cause is always
        right.
    drafter, target: functions that write the broken folder to a given path and return it. target is None if the target is intact.
    chat: whether prompts use the chat template.
    part: folder of the bundled drafter that is broken. If it is ``vp``, the drafter is examined as second drafter.
    intact: function that writes the intact drafter; None if the bundled drafter is the intact one.
    """

    causes: str
    drafter: Callable[[Path], Path] = lambda out: TINY / "dflash"
    target: Callable[[Path], Path] | None = None
    chat: bool = False
    part: str = "dflash"
    intact: Callable[[Path], Path] | None = None

    @property
    def visible(self) -> int:
        """Number of tokens after the anchor that the drafter is shown."""
        return VISIBLE if self.part == "vp" else 0


def config(causes: str, change: Callable[[Config], Config], part: str = "dflash") -> Broken:
    return Broken(causes, lambda out: copied(out, change, part=part), part=part)


def weights(causes: str, change: Callable[[Weights], Weights], part: str = "dflash") -> Broken:
    return Broken(causes, lambda out: copied(out, weights=change, part=part), part=part)


def each(ends: str | tuple[str, ...], change: Callable[[torch.Tensor], torch.Tensor], layer: int | None = None) -> Callable[[Weights], Weights]:  # fmt: skip
    """Returns an edit that applies ``change`` to every weight whose name ends with ``ends``.

    layer: number of the only layer that is changed; None: all layers.
    """
    prefix = "" if layer is None else f"layers.{layer}."
    return lambda w: {k: change(v).contiguous() if k.endswith(ends) and prefix in k else v for k, v in w.items()}


def exchanged(one: str, other: str, layer: int | None = None) -> Callable[[Weights], Weights]:
    """Returns an edit that exchanges two kinds of weights.

    one, other: parts of their names, such as "k_proj" and "v_proj".
    layer: number of the only layer that is changed; None: all layers.
    """
    prefix = "." if layer is None else f"layers.{layer}."

    def name(key: str) -> str:
        if prefix not in f".{key}":
            return key
        return key.replace(one, "?").replace(other, one).replace("?", other)

    return lambda w: {name(k): v for k, v in w.items()}


def random(ends: str, layer: int | None = None) -> Callable[[Weights], Weights]:
    def change(w: torch.Tensor) -> torch.Tensor:
        draw = torch.randn(w.shape, generator=torch.Generator().manual_seed(3))
        return (draw * w.float().std()).to(w.dtype)

    return each(ends, change, layer)


def columns(order: Sequence[int]) -> Callable[[Weights], Weights]:
    """Returns an edit that reorders the blocks of columns of ``fc``. Each tap has one block."""
    return each("fc.weight", lambda w: torch.cat([w.split(192, 1)[n] for n in order], 1))


def moved(name: str, by: int = 1) -> Callable[[Weights], Weights]:
    return each(name, lambda w: w.roll(by, 0))


def clipped(w: torch.Tensor) -> torch.Tensor:
    limit = 0.6 * w.float().std()
    return w.clamp(-limit, limit)


def infinite(w: torch.Tensor) -> torch.Tensor:
    w = w.clone()
    w[3] = torch.inf
    return w


def repeated_layer(w: Weights) -> Weights:
    return {k: w[k.replace("layers.2.", "layers.1.")].clone() for k in w}


def last_lost(out: Path) -> Path:
    """Writes the bundled drafter without the last one of its three layers."""
    kept = outer(num_hidden_layers=2, layer_types=["full_attention"] * 2)
    return copied(out, kept, lambda w: {k: v for k, v in w.items() if not k.startswith("layers.2.")})


NORMS = ("norm.weight", "layernorm.weight")
HEADS = ("q_norm.weight", "k_norm.weight")


def smaller(out: Path, config: Callable[[Config], Config] = dict, change: Callable[[Weights], Weights] = dict) -> Path:
    """Writes the EAGLE-3 drafter with half of the vocabulary, since most published drafters have a reduced vocabulary.

    config, change: functions that return the changed config or weights.
    """

    def half(w: Weights) -> Weights:
        ids = torch.arange(0, 4096, 2)
        return change({**w, "lm_head.weight": w["lm_head.weight"][ids].clone(), "d2t": ids - torch.arange(2048)})

    return copied(out, lambda c: config({**c, "draft_vocab_size": 2048}), half, "eagle3")


def untrained(out: Path) -> Path:
    """Writes a drafter in its state before training."""
    target = load_target(str(TINY / "target"), "float32", "cpu")
    torch.manual_seed(0)
    drafter = DFlashDraftModel(drafter_config(target.config, layers=3, block_size=16, mask_token_id=1, target_layer_ids=[1, 4, 7, 10, 13]))  # fmt: skip
    start_from_target(drafter, target.base)
    drafter.bfloat16().save_pretrained(out)
    return out


def permuted(out: Path) -> Path:
    """Writes the bundled target with permuted token ids in its tokenizer."""
    shutil.copytree(TINY / "target", out)
    path = out / "tokenizer.json"
    tokenizer = json.loads(path.read_bytes())
    vocabulary = tokenizer["model"]["vocab"]
    ordinary = [t for t, n in vocabulary.items() if n >= 300]
    ids = [vocabulary[t] for t in ordinary]
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(0)).tolist()
    vocabulary |= {t: ids[n] for t, n in zip(ordinary, order, strict=True)}
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    return out


def speculators_form(config: Config) -> Config:
    nested = config["dflash_config"]
    return {
        "speculators_model_type": "dflash", "block_size": config["block_size"], "sample_from_anchor": False,
        "transformer_layer_config": {k: v for k, v in config.items() if k != "dflash_config"},
        "aux_hidden_state_layer_ids": [n + 1 for n in nested["target_layer_ids"]], "mask_token_id": nested["mask_token_id"],
    }  # fmt: skip


def noisy(amount: float) -> Callable[[Weights], Weights]:
    """Returns an edit that adds normal noise to every matrix.

    amount: standard deviation of the noise ÷ standard deviation of the matrix.
    """

    def change(w: torch.Tensor) -> torch.Tensor:
        draw = torch.randn(w.shape, generator=torch.Generator().manual_seed(w.numel()))
        return (w.float() + amount * w.float().std() * draw).to(w.dtype) if w.dim() == 2 else w

    return each("weight", change)


def merged(amount: float, rank: int = 16) -> Callable[[Weights], Weights]:
    """Returns an edit that adds a low-rank product to every matrix of the layers, like merging an adapter of another drafter.

    amount: as for ``noisy``.
    """

    def change(w: torch.Tensor) -> torch.Tensor:
        if w.dim() < 2:
            return w
        generator = torch.Generator().manual_seed(w.numel())
        down, up = (
            torch.randn(rank, w.shape[1], generator=generator),
            torch.randn(w.shape[0], rank, generator=generator),
        )
        product = up @ down
        return (w.float() + amount * w.float().std() / product.std() * product).to(w.dtype)

    return each("proj.weight", change)


def coarse(bits: int, ends: str = "proj.weight") -> Callable[[Weights], Weights]:
    """Returns an edit that rounds matrices to ``bits`` bits, with one scale per row.

    ends: end of the names of these matrices.
    """

    def change(w: torch.Tensor) -> torch.Tensor:
        step = w.float().abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
        return ((w.float() / step).round() * step).to(w.dtype)

    return each(ends, change)


def scaled(by: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda w: (w.float() * by).to(w.dtype)


def by_column(w: torch.Tensor) -> torch.Tensor:
    """Returns a matrix of the same shape, whose rows are filled with the entries of ``w`` in the order of its columns."""
    return w.T.contiguous().view_as(w)


def by_feature(taps: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns a function that reorders the columns of ``fc`` so that the taps of each feature are adjacent."""
    return lambda w: w.unflatten(1, (taps, -1)).transpose(1, 2).flatten(1)


def prefixed(prefix: str) -> Callable[[Weights], Weights]:
    return lambda w: {prefix + k: v for k, v in w.items()}


def pointer(out: Path) -> Path:
    """Writes a drafter's folder as it is after cloning without Git LFS."""
    copied(out)
    (out / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:" + 64 * "0" + "\nsize 1851392\n",
        encoding="utf-8",
    )
    return out


def layer_of_target(layer: int, source: int) -> Callable[[Weights], Weights]:
    """Returns an edit that replaces a layer of the drafter by a layer of the target, as if a shard came from another checkpoint."""

    def change(weights: Weights) -> Weights:
        held = {k: w for p in sorted((TINY / "target").glob("*.safetensors")) for k, w in load_file(p).items()}
        prefix = f"layers.{layer}."
        return {k: held[k.replace(prefix, f"model.layers.{source}.")].clone() if k.startswith(prefix) else w for k, w in weights.items()}  # fmt: skip

    return change


def shifted_table(out: Path) -> Path:
    """Writes the bundled target with the rows of its embedding shifted by one."""
    shutil.copytree(TINY / "target", out)
    for path in out.glob("*.safetensors"):
        weights = load_file(path)
        if (table := weights.get("model.embed_tokens.weight")) is not None:
            weights["model.embed_tokens.weight"] = table.roll(1, 0)
            save_file(weights, path, {"format": "pt"})
    return out


def target_table() -> torch.Tensor:
    """Returns the bundled target's embedding."""
    held = (load_file(p) for p in sorted((TINY / "target").glob("*.safetensors")))
    return next(w["model.embed_tokens.weight"] for w in held if "model.embed_tokens.weight" in w)


def rotated_layers(w: Weights) -> Weights:
    """Returns the weights with each layer moved one position towards the input, and the first layer moved to the end."""
    return {k: w[re.sub(r"layers\.(\d)", lambda m: f"layers.{(int(m[1]) + 1) % 3}", k)].clone() for k in w}


def half_empty(w: torch.Tensor) -> torch.Tensor:
    """Returns the matrix with zeros in the second half of its rows, as if these rows were never filled."""
    w = w.clone()
    w[len(w) // 2 :] = 0
    return w


def without_tap(tap: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns a function that sets the columns of one tap in ``fc`` to zero."""
    return lambda w: w.index_fill(1, torch.arange(192 * tap, 192 * tap + 192), 0)


def without_scale(w: torch.Tensor) -> torch.Tensor:
    """Returns the matrix in fp8 (e4m3), without the scale by which it must be multiplied."""
    return (w.float() / w.float().abs().max() * 448).to(torch.float8_e4m3fn).to(w.dtype)


def flipped(w: torch.Tensor) -> torch.Tensor:
    """Returns the matrix with one huge entry, as after a flip of the highest exponent bit."""
    w = w.clone()
    w[5, 7] = 2.0**120
    return w
