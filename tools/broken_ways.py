"""Ways of breaking the bundled drafters, and their target, and sound ones: what the doctor is asked about.

Each is written to a folder as somebody would publish it. A tenth (``KEPT_OUT``) was kept out of any tuning of the doctor.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from d2sd.doctor.weight_edits import halves_to_pairs, pairs_to_halves
from d2sd.folders.loading import BUNDLED, load_target
from d2sd.nets.drafter import DFlashDraftModel, drafter_config, start_from_target

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
    """One way: causes of which one is to be named, what breaks the drafter or the target, and whether prompts stand in a template.

    visible: tokens after the anchor that it is shown.
    """

    causes: str
    drafter: Callable[[Path], Path] = lambda out: TINY / "dflash"
    target: Callable[[Path], Path] | None = None
    chat: bool = False
    visible: int = 0


def config(causes: str, change: Callable[[Config], Config], part: str = "dflash") -> Broken:
    return Broken(causes, lambda out: copied(out, change, part=part))


def weights(causes: str, change: Callable[[Weights], Weights], part: str = "dflash") -> Broken:
    return Broken(causes, lambda out: copied(out, weights=change, part=part))


def each(ends: str | tuple[str, ...], change: Callable[[torch.Tensor], torch.Tensor], layer: int | None = None) -> Callable[[Weights], Weights]:  # fmt: skip
    """Every weight whose name ends so, of one layer or of all, changed."""
    at = "" if layer is None else f"layers.{layer}."
    return lambda w: {k: change(v).contiguous() if k.endswith(ends) and at in k else v for k, v in w.items()}


def exchanged(one: str, other: str, layer: int | None = None) -> Callable[[Weights], Weights]:
    """Two parts of a name in each other's place."""
    at = "." if layer is None else f"layers.{layer}."

    def name(key: str) -> str:
        if at not in f".{key}":
            return key
        return key.replace(one, "?").replace(other, one).replace("?", other)

    return lambda w: {name(k): v for k, v in w.items()}


def random(ends: str, layer: int | None = None) -> Callable[[Weights], Weights]:
    def change(w: torch.Tensor) -> torch.Tensor:
        draw = torch.randn(w.shape, generator=torch.Generator().manual_seed(3))
        return (draw * w.float().std()).to(w.dtype)

    return each(ends, change, layer)


def columns(order: Sequence[int]) -> Callable[[Weights], Weights]:
    """The taps' parts of ``fc`` in another order."""
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


def last_lost(out: Path) -> Path:
    """Two layers of three, in the config and among the weights."""
    kept = outer(num_hidden_layers=2, layer_types=["full_attention"] * 2)
    return copied(out, kept, lambda w: {k: v for k, v in w.items() if not k.startswith("layers.2.")})


def repeated_layer(w: Weights) -> Weights:
    return {k: w[k.replace("layers.2.", "layers.1.")].clone() for k in w}


def eighth(w: torch.Tensor) -> torch.Tensor:
    return w / 8


NORMS = ("norm.weight", "layernorm.weight")
HEADS = ("q_norm.weight", "k_norm.weight")


def smaller(out: Path, config: Callable[[Config], Config] = dict, change: Callable[[Weights], Weights] = dict) -> Path:
    """The EAGLE-3 drafter with half of the vocabulary, every other token of it, as most are published."""

    def half(w: Weights) -> Weights:
        ids = torch.arange(0, 4096, 2)
        return change({**w, "lm_head.weight": w["lm_head.weight"][ids].clone(), "d2t": ids - torch.arange(2048)})

    return copied(out, lambda c: config({**c, "draft_vocab_size": 2048}), half, "eagle3")


def untrained(out: Path) -> Path:
    """A drafter as training begins."""

    target = load_target(str(TINY / "target"), torch.float32, "cpu")
    torch.manual_seed(0)
    drafter = DFlashDraftModel(drafter_config(target.config, layers=3, block_size=16, mask_token_id=1, target_layer_ids=[1, 4, 7, 10, 13]))  # fmt: skip
    start_from_target(drafter, target.base)
    drafter.bfloat16().save_pretrained(out)
    return out


def permuted(out: Path) -> Path:
    """The bundled target with another tokenizer's ids."""
    shutil.copytree(TINY / "target", out)
    path = out / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    ordinary = [t for t, n in vocabulary.items() if n >= 300]
    ids = [vocabulary[t] for t in ordinary]
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(0)).tolist()
    vocabulary |= {t: ids[n] for t, n in zip(ordinary, order, strict=True)}
    path.write_text(json.dumps(tokenizer))
    return out


def speculators_form(config: Config) -> Config:
    own = config["dflash_config"]
    return {
        "speculators_model_type": "dflash", "block_size": config["block_size"], "sample_from_anchor": False,
        "transformer_layer_config": {k: v for k, v in config.items() if k != "dflash_config"},
        "aux_hidden_state_layer_ids": [n + 1 for n in own["target_layer_ids"]], "mask_token_id": own["mask_token_id"],
    }  # fmt: skip


def layer_config(**changed: Any) -> Callable[[Config], Config]:
    return lambda c: {**c, "transformer_layer_config": {**c["transformer_layer_config"], **changed}}


def noisy(amount: float) -> Callable[[Weights], Weights]:
    """Every matrix with normal noise of so many times its own spread."""

    def change(w: torch.Tensor) -> torch.Tensor:
        draw = torch.randn(w.shape, generator=torch.Generator().manual_seed(w.numel()))
        return (w.float() + amount * w.float().std() * draw).to(w.dtype) if w.dim() == 2 else w

    return each("weight", change)


def merged(amount: float, rank: int = 16) -> Callable[[Weights], Weights]:
    """Every matrix of the layers with a product of low rank added, so large beside it, as by an adapter of another drafter."""

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
    """Matrices on a grid, row by row."""

    def change(w: torch.Tensor) -> torch.Tensor:
        step = w.float().abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
        return ((w.float() / step).round() * step).to(w.dtype)

    return each(ends, change)


def scaled(by: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda w: (w.float() * by).to(w.dtype)


def by_column(w: torch.Tensor) -> torch.Tensor:
    """The entries of a matrix in the order of its columns, as one reads that was written column by column."""
    return w.T.contiguous().view_as(w)


def by_feature(taps: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The columns of ``fc`` with the taps of each feature side by side."""
    return lambda w: w.unflatten(1, (taps, -1)).transpose(1, 2).flatten(1)


def split_anew(parts: Sequence[str], order: Callable[[torch.Tensor], torch.Tensor], layer: int | None = None) -> Callable[[Weights], Weights]:  # fmt: skip
    """Matrices that were stacked in another order of rows than they are split by."""

    def change(weights: Weights) -> Weights:
        changed = dict(weights)
        for name in weights:
            if name.endswith(f"{parts[0]}.weight") and (layer is None or f"layers.{layer}." in name):
                names = [name.replace(parts[0], part) for part in parts]
                rows = order(torch.cat([weights[n] for n in names]))
                sizes = [len(weights[n]) for n in names]
                changed |= {n: w.clone() for n, w in zip(names, rows.split(sizes), strict=True)}
        return changed

    return change


def prefixed(prefix: str) -> Callable[[Weights], Weights]:
    return lambda w: {prefix + k: v for k, v in w.items()}


def pointer(out: Path) -> Path:
    """A folder that was cloned without Git LFS."""
    copied(out)
    (out / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:" + 64 * "0" + "\nsize 1851392\n"
    )
    return out


def layer_of_target(layer: int, source: int) -> Callable[[Weights], Weights]:
    """A layer of the target in the place of the drafter's, as a shard of another checkpoint is."""

    def change(weights: Weights) -> Weights:
        held = {k: w for p in sorted((TINY / "target").glob("*.safetensors")) for k, w in load_file(p).items()}
        at = f"layers.{layer}."
        return {k: held[k.replace(at, f"model.layers.{source}.")].clone() if k.startswith(at) else w for k, w in weights.items()}  # fmt: skip

    return change


def shifted_table(out: Path) -> Path:
    """The bundled target with the rows of its table of tokens moved by one."""
    shutil.copytree(TINY / "target", out)
    for path in out.glob("*.safetensors"):
        weights = load_file(path)
        if (table := weights.get("model.embed_tokens.weight")) is not None:
            weights["model.embed_tokens.weight"] = table.roll(1, 0)
            save_file(weights, path, {"format": "pt"})
    return out


WAYS = {
    "taps + 1": config("taps", inner(target_layer_ids=[2, 5, 8, 11, 14])),
    "a tap missing": config("taps", inner(target_layer_ids=[1, 4, 10, 13])),
    "mask token": config("mask", inner(mask_token_id=77)),
    "RoPE base": config("rope", rope(1e6)),
    "a window": config("window", window(24)),
    "fill as next": config("reads", flat),
    "template": Broken("template", target=lambda out: templated(out, INSTRUCT), chat=True),
    "8 bits": Broken("rounding", target=rounded),
    "shuffled layer": weights("weights", shuffled(1)),
    "misnamed tensor": weights("tensors", renamed("layers.1.self_attn.q_proj.weight", "layers.1.self_attn.query_proj.weight")),
    "γ": config("rows", outer(block_size=8)),
    "taps − 1": config("taps", inner(target_layer_ids=[0, 3, 6, 9, 12])),
    "taps reversed": config("taps", inner(target_layer_ids=[13, 10, 7, 4, 1])),
    "one tap": config("taps", inner(target_layer_ids=[1, 4, 7, 10, 12])),
    "two taps exchanged": config("taps", inner(target_layer_ids=[1, 10, 7, 4, 13])),
    "two taps moved": config("taps", inner(target_layer_ids=[1, 5, 7, 10, 12])),
    "mask = end": config("mask", inner(mask_token_id=0)),
    "RoPE base 30000": config("rope", rope(30000.0)),
    "RoPE scaled": config("rope", outer(rope_parameters={"rope_theta": 10000.0, "rope_type": "linear", "factor": 4.0})),
    "window 40": config("window", window(40)),
    "causal block": config("causal", outer(is_causal=True)),
    "γ 24": config("rows", outer(block_size=24)),
    "γ 12": config("rows", outer(block_size=12)),
    "2 of 3 layers": config("layers", outer(num_hidden_layers=2, layer_types=["full_attention"] * 2)),
    "head_dim halved": config("tensors", outer(head_dim=32, num_attention_heads=6, num_key_value_heads=2)),
    "4 bits": Broken("rounding", target=lambda out: rounded(out, 4)),
    "tokenizer": Broken("tokenizer", target=permuted),
    "shuffled layer 0": weights("weights", shuffled(0)),
    "shuffled layer 2": weights("weights", shuffled(2)),
    "q and k as GGUF": weights("rotary", lambda w: each("k_proj.weight", lambda x: halves_to_pairs(x, 1))(each("q_proj.weight", lambda x: halves_to_pairs(x, 3))(w))),
    "q alone as GGUF": weights("rotary", each("q_proj.weight", lambda x: halves_to_pairs(x, 3))),
    "q and k the other way": weights("rotary", lambda w: each("k_proj.weight", lambda x: pairs_to_halves(x, 1))(each("q_proj.weight", lambda x: pairs_to_halves(x, 3))(w))),
    "q and k norms ones": weights("norms", each(HEADS, torch.ones_like)),
    "norms − 1": weights("norms", each(NORMS, lambda x: x - 1)),
    "norms + 1": weights("norms", each(NORMS, lambda x: x + 1)),
    "layer norms + 1": weights("norms", each("layernorm.weight", lambda x: x + 1)),
    "norms ones": weights("norms", each(NORMS, torch.ones_like)),
    "fc columns of two taps": weights("taps", columns([0, 2, 1, 3, 4])),
    "fc columns of the ends": weights("taps", columns([4, 1, 2, 3, 0])),
    "gate and up": weights("swapped", exchanged("gate_proj", "up_proj")),
    "gate and up of a layer": weights("swapped", exchanged("gate_proj", "up_proj", 1)),
    "k and v": weights("swapped", exchanged("k_proj", "v_proj")),
    "norms exchanged": weights("swapped", exchanged("input_layernorm", "post_attention_layernorm")),
    "final norms exchanged": weights("swapped", lambda w: {**w, "norm.weight": w["hidden_norm.weight"], "hidden_norm.weight": w["norm.weight"]}),
    "o transposed": weights("transposed", each("o_proj.weight", lambda x: x.T)),
    "layers 0 and 2": weights("order", exchanged("layers.0.", "layers.2.")),
    "last layer lost": Broken("weights layers", last_lost),
    "last MLP random": weights("weights", lambda w: {**w, **{k: random("weight", 2)(w)[k] for k in w if "layers.2.mlp" in k}}),
    "a random down_proj": weights("weights", random("mlp.down_proj.weight", 1)),
    "a random q_proj": weights("weights", random("self_attn.q_proj.weight", 0)),
    "an empty down_proj": weights("weights", each("down_proj.weight", torch.zeros_like, 2)),
    "a copied layer": weights("weights", repeated_layer),
    "infinity": weights("folder weights", each("fc.weight", infinite)),
    "fc clipped": weights("weights", each("fc.weight", clipped)),
    "fc random": weights("weights training", random("fc.weight")),
    "untrained": Broken("training", untrained),
    "vp as first": Broken("role", lambda out: TINY / "vp"),
    "dspark embedding": weights("tables", lambda w: {**w, "embed_tokens.weight": target_table().roll(1, 0)}, "dspark"),
    "dspark Markov rows": weights("tables", moved("markov_w1.weight"), "dspark"),
    "dspark Markov exchanged": weights("swapped", exchanged("markov_w1", "markov_w2"), "dspark"),
    "dspark confidence": weights("confidence", each(("confidence_head.proj.weight", "confidence_head.proj.bias"), torch.neg), "dspark"),
    "dspark from the anchor": config("reads", outer(sample_from_anchor=True), "dspark"),
    "dspark taps": config("taps", outer(aux_hidden_state_layer_ids=[1, 4, 7, 10, 13]), "dspark"),
    "dspark q and k": weights("rotary", lambda w: each("k_proj.weight", lambda x: halves_to_pairs(x, 1))(each("q_proj.weight", lambda x: halves_to_pairs(x, 3))(w)), "dspark"),
    "eagle3 residual": config("residual", outer(norm_before_residual=True), "eagle3"),
    "eagle3 output": config("output", outer(norm_output=True), "eagle3"),
    "eagle3 d2t": Broken("map", lambda out: smaller(out, change=each("d2t", lambda d: d + 1))),
    "eagle3 head_dim": config("head_dim", outer(head_dim=32, num_attention_heads=6, num_key_value_heads=2), "eagle3"),
    "eagle3 taps + 1": config("taps", outer(eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 8, 14], "use_aux_hidden_state": True}), "eagle3"),
    "eagle3 RoPE": config("rope", outer(rope_theta=1e6), "eagle3"),
    "eagle3 fc columns": weights("taps", columns([0, 2, 1]), "eagle3"),
    "eagle3 norms": weights("swapped", exchanged("input_layernorm", "hidden_norm"), "eagle3"),
    "eagle3 gate and up": weights("swapped", exchanged("gate_proj", "up_proj"), "eagle3"),
    "eagle3 q and k": weights("rotary", lambda w: each("k_proj.weight", lambda x: halves_to_pairs(x, 1))(each("q_proj.weight", lambda x: halves_to_pairs(x, 3))(w)), "eagle3"),
    "eagle3 head rows": weights("tables", moved("lm_head.weight"), "eagle3"),
    "eagle3 halves": weights("swapped", each(("q_proj.weight", "k_proj.weight", "v_proj.weight"), lambda x: x.roll(192, 1)), "eagle3"),
    "eagle3 NaN": weights("folder weights", each("fc.weight", lambda x: x * torch.nan), "eagle3"),
    "target's table": Broken("tokenizer target", target=shifted_table),
    "noise of 0.7": weights("weights", noisy(0.7)),
    "noise of 0.4": weights("weights", noisy(0.4)),
    "another adapter": weights("weights", merged(0.6)),
    "2 bits": weights("weights", coarse(2)),
    "3 bits": weights("weights", coarse(3)),
    "fc by feature": weights("taps", each("fc.weight", by_feature(5))),
    "fc column by column": weights("transposed", each("fc.weight", by_column)),
    "all column by column": weights("transposed", each("proj.weight", by_column)),
    "gate and up row by row": weights("split", split_anew(("gate_proj", "up_proj"), lambda w: w.unflatten(0, (-1, 2)).transpose(0, 1).flatten(0, 1))),
    "q, k, v as k, v, q": weights("split", split_anew(("q_proj", "k_proj", "v_proj"), lambda w: w.roll(128, 0))),
    "o × 8 in a layer": weights("scale", each("o_proj.weight", scaled(8), 1)),
    "down / 8 in a layer": weights("scale", each("down_proj.weight", scaled(1 / 8), 1)),
    "down × 16 in a layer": weights("scale", each("down_proj.weight", scaled(16), 0)),
    "v × 8": weights("scale weights", each("v_proj.weight", scaled(8))),
    "a layer of the target": weights("weights", layer_of_target(1, 12)),
    "q norms lost": weights("norms", each("q_norm.weight", torch.ones_like)),
    "k norms of a layer lost": weights("norms", each("k_norm.weight", torch.ones_like, 1)),
    "a norm tenfold": weights("norms scale weights", each("post_attention_layernorm.weight", scaled(10), 1)),
    "q heads in another order": weights("rotary swapped weights", each("q_proj.weight", lambda w: w.roll(64, 0))),
    "a prefix": weights("tensors", prefixed("module.")),
    "a longer prefix": weights("tensors", prefixed("draft_model.model."), "eagle3"),
    "LFS pointer": Broken("tensors folder", pointer),
    "eagle3 d2t absolute": Broken("map", lambda out: smaller(out, change=lambda w: {**w, "d2t": torch.arange(0, 4096, 2)})),
    "eagle3 d2t against t2d": Broken("map", lambda out: smaller(out, change=lambda w: {**w, "d2t": w["d2t"] + 1, "t2d": torch.arange(4096) % 2 == 0})),
    "taps and RoPE": config("taps rope", lambda c: rope(1e6)(inner(target_layer_ids=[2, 5, 8, 11, 14])(c))),
    "mask and window": config("mask window", lambda c: window(24)(inner(mask_token_id=77)(c))),
    "eagle3 noise": weights("weights", noisy(0.7), "eagle3"),
    "eagle3 fc by feature": weights("taps", each("fc.weight", by_feature(3)), "eagle3"),
    "dspark noise": weights("weights", noisy(0.7), "dspark"),
    "vp noise": Broken("weights", lambda out: copied(out, weights=noisy(0.6), part="vp"), visible=2),
}  # fmt: skip
# Nobody looked at what the doctor says of these before its thresholds stood.
KEPT_OUT = {
    "taps + 3 of the last two": config("taps", inner(target_layer_ids=[1, 4, 7, 12, 15])),
    "RoPE base 500000": config("rope", rope(5e5)),
    "v_proj and k_proj of layer 2": weights("swapped", exchanged("k_proj", "v_proj", 2)),
    "q transposed in a layer": weights("transposed", each("q_proj.weight", lambda x: x.T, 1)),
    "eagle3 layer norms + 1": weights("norms", each("layernorm.weight", lambda x: x + 1), "eagle3"),
    "layers 1 and 2": weights("order", exchanged("layers.1.", "layers.2.")),
    "eagle3 taps reversed": config("taps", outer(eagle_config={"eagle_aux_hidden_state_layer_ids": [13, 7, 1], "use_aux_hidden_state": True}), "eagle3"),
    "dspark mask": config("mask", outer(mask_token_id=9), "dspark"),
    "noise of 0.55": weights("weights", noisy(0.55)),
    "another adapter, stronger": weights("weights", merged(1.0, 8)),
    "3 bits of the MLPs": weights("weights", lambda w: coarse(3, "mlp.up_proj.weight")(coarse(3, "mlp.down_proj.weight")(coarse(3, "mlp.gate_proj.weight")(w)))),
    "up × 6 in a layer": weights("scale", each("up_proj.weight", scaled(6), 2)),
    "o column by column in a layer": weights("transposed", each("o_proj.weight", by_column, 0)),
    "q, k, v as v, q, k": weights("split", split_anew(("q_proj", "k_proj", "v_proj"), lambda w: w.roll(64, 0))),
    "gate and up row by row in a layer": weights("split", split_anew(("gate_proj", "up_proj"), lambda w: w.unflatten(0, (-1, 2)).transpose(0, 1).flatten(0, 1), 2)),
    "k norms lost": weights("norms", each("k_norm.weight", torch.ones_like)),
    "another prefix": weights("tensors", prefixed("_orig_mod."), "dspark"),
    "dspark fc by feature": weights("taps", each("fc.weight", by_feature(5)), "dspark"),
    "layer 2 of the target": weights("weights", layer_of_target(2, 15)),
    "eagle3 another adapter": weights("weights", merged(0.8), "eagle3"),
    "dspark norms + 1": weights("norms", each(NORMS, lambda x: x + 1), "dspark"),
    "eagle3 t2d against d2t": Broken("map", lambda out: smaller(out, change=lambda w: {**w, "d2t": w["d2t"] - 1, "t2d": torch.arange(4096) % 2 == 0})),
}  # fmt: skip
SOUND = {
    "sound": Broken("none"),
    "sound dspark": Broken("none", lambda out: TINY / "dspark"),
    "sound eagle3": Broken("none", lambda out: TINY / "eagle3"),
    "sound vp": Broken("none", lambda out: TINY / "vp", visible=2),
    "sound speculators": config("none", speculators_form),
    "sound half vocabulary": Broken("none", smaller),
    "sound float32": weights("none", lambda w: {k: v.float() for k, v in w.items()}),
    "sound wide window": config("none", lambda c: {**window(4096)(c), "is_causal": False}),
}


def target_table() -> torch.Tensor:
    """The bundled target's embedding."""
    held = (load_file(p) for p in sorted((TINY / "target").glob("*.safetensors")))
    return next(w["model.embed_tokens.weight"] for w in held if "model.embed_tokens.weight" in w)
