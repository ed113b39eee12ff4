"""Ways to break the bundled drafters that were made without knowledge of the doctor (``OUTSIDE``), and sound variants
(``OUTSIDE_SOUND``).

They imitate mistakes of conversion, quantisation, sharding and merging.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from tools.breaking import (
    TINY,
    Broken,
    Weights,
    config,
    copied,
    each,
    exchanged,
    inner,
    outer,
    scaled,
    sharded,
    speculators_form,
    target_table,
    untrained,
    weights,
)

MLP = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")
MATRICES = ("proj.weight", "fc.weight", "lm_head.weight")
Change = Callable[[Tensor], Tensor]


def in_float(change: Change) -> Change:
    """Returns a function that applies ``change`` in float32 and returns the result in the tensor's dtype."""
    return lambda w: change(w.float()).to(w.dtype)


def both(*changes: Callable[[Weights], Weights]) -> Callable[[Weights], Weights]:
    def change(w: Weights) -> Weights:
        for one in changes:
            w = one(w)
        return w

    return change


def drawn(seed: int, size: int, spread: float) -> Tensor:
    """Returns ``size`` random scales around 1, as for smoothing of activations."""
    return torch.exp(torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread).clamp(0.2, 8)


def pairs_of_rows(w: Tensor) -> Tensor:
    """Reorders the rows of each head of size 64 from two halves to adjacent pairs."""
    return w.view(-1, 2, 32, w.shape[1]).transpose(1, 2).reshape(w.shape)


def split_by_rank(w: Weights) -> Weights:
    """Imitates a wrong split of fused matrices. Gate and up were fused for two ranks as gate 0, up 0, gate 1, up 1, and are split
    in the middle.
    """
    for n in range(3):
        gate, up = (f"layers.{n}.mlp.{part}_proj.weight" for part in ("gate", "up"))
        (g0, g1), (u0, u1) = w[gate].chunk(2), w[up].chunk(2)
        w |= {gate: torch.cat([g0, u0]), up: torch.cat([g1, u1])}
    return w


def smoothed(w: Weights) -> Weights:
    """Moves scales from the input norm to q, k and v. This is wrong for keys and values of the context, which do not pass this
    norm.
    """
    for n in range(3):
        scale, norm = drawn(n, 192, 0.7), f"layers.{n}.input_layernorm.weight"
        w[norm] = (w[norm].float() / scale).to(w[norm].dtype)
        w = each(("q_proj.weight", "k_proj.weight", "v_proj.weight"), in_float(lambda x, s=scale: x * s), n)(w)  # type: ignore[misc]
    return w


def adapter(w: Tensor) -> Tensor:
    draw = torch.Generator().manual_seed(w.numel())
    product = torch.randn(w.shape[0], 16, generator=draw) @ torch.randn(16, w.shape[1], generator=draw)
    return w + product * (0.4 * w.norm() / product.norm())


def scales_reshaped(w: Tensor) -> Tensor:
    """Rounds a matrix to 4 bits in groups of 64, but confuses the order of the scales: they are stored by group and row, and read
    by row and group.
    """
    groups = w.view(w.shape[0], -1, 64)
    scale = groups.abs().amax(-1) / 7
    return ((groups / scale[..., None]).round() * scale.T.reshape(scale.shape)[..., None]).view(w.shape)


def without_padding(w: Weights) -> Weights:
    """Imitates a reader that ignores padding: in a flat buffer, each tensor of layer 0 is padded to a multiple of 7 entries."""
    names = sorted((n for n in w if n.startswith("layers.0.")), key=lambda n: "q_proj" not in n)
    flat = torch.cat([torch.cat([w[n].flatten(), w[n].new_zeros(-w[n].numel() % 7)]) for n in names])
    offset = 0
    for n in names:
        w[n], offset = flat[offset : offset + w[n].numel()].view(w[n].shape).clone(), offset + w[n].numel()
    return w


def second_shard_of_vp(w: Weights) -> Weights:
    other = load_file(TINY / "vp" / "model.safetensors")
    return {n: other[n].clone() if n.startswith("layers.2.") or n == "norm.weight" else t for n, t in w.items()}


def stale(out: Path) -> Path:
    """Writes good weights, beside shards and their index from before training."""
    sharded(untrained(out), 2)
    shutil.copyfile(TINY / "dflash" / "model.safetensors", out / "model.safetensors")
    return out


def without_zero_point(w: Tensor) -> Tensor:
    scale = (w.max() - w.min()) / 255
    return ((w - w.min()) / scale).round() * scale


def pruned(w: Tensor) -> Tensor:
    """Sets the two smallest of every four entries to zero."""
    groups = w.view(w.shape[0], -1, 4)
    return groups.scatter(-1, groups.abs().argsort(-1)[..., :2], 0.0).view(w.shape)


def half_vocabulary(rows: Tensor, listed: Tensor) -> Broken:
    """Returns an EAGLE-3 drafter with a wrong map of its draft vocabulary.

    rows: tokens of the rows of its LM head.
    listed: tokens that the map d2t lists.
    """

    def cut(w: Weights) -> Weights:
        drafted = torch.zeros(4096, dtype=torch.bool).index_fill(0, listed, True)
        return {**w, "lm_head.weight": w["lm_head.weight"][rows].clone(), "d2t": listed - torch.arange(len(listed)), "t2d": drafted}  # fmt: skip

    return Broken("", lambda out: copied(out, outer(draft_vocab_size=len(rows)), cut, "eagle3"), part="eagle3")


def zero_chunk(out: Path) -> Path:
    """Writes a folder whose weight file contains 128 KiB of zeros, as after an interrupted download."""
    copied(out, part="dspark")
    raw = bytearray((out / "model.safetensors").read_bytes())
    raw[11 << 17 : 12 << 17] = bytes(1 << 17)
    (out / "model.safetensors").write_bytes(raw)
    return out


def in_part(part: str, change: Callable[[Weights], Weights], **settings: object) -> Broken:
    return Broken("", lambda out: copied(out, outer(**settings), change, part), part=part)


def reordered(order: Sequence[int]) -> Change:
    return lambda w: w.view(-1, len(order), *w.shape[1:])[:, list(order)].reshape(w.shape)


def target_norm() -> Tensor:
    held = (load_file(p) for p in sorted((TINY / "target").glob("*.safetensors")))
    return next(w["model.norm.weight"] for w in held if "model.norm.weight" in w)


IDS = torch.randperm(4094, generator=torch.Generator().manual_seed(0))[:2048] + 2
OUTSIDE = {
    "q and k by pairs": weights("rotary", each(("q_proj.weight", "k_proj.weight"), pairs_of_rows)),
    "gate and up of two ranks": weights("", split_by_rank),
    "average without correction": weights("", each("weight", scaled(0.632))),
    "smoothed context": weights("", smoothed),
    "half of a smoothing": weights("", each("up_proj.weight", in_float(lambda w: w / drawn(5, 512, 0.9)[:, None]), 2)),
    "adapter twice": weights("", each(("q_proj.weight", "v_proj.weight"), in_float(adapter)), "vp"),
    "scales reshaped": weights("", each(MLP, in_float(scales_reshaped))),
    "nibble order": weights("", each("o_proj.weight", reordered([0, 2, 4, 6, 1, 3, 5, 7]), 2)),
    "padding ignored": weights("", without_padding),
    "YaRN copied": config("rope", outer(rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 512})),
    "windows of 16": config("attention", outer(layer_types=["full_attention", "sliding_attention", "sliding_attention"], sliding_window=16, use_sliding_window=True)),
    "taps by string, a norm lost": Broken("taps", lambda out: copied(out, inner(target_layer_ids=[1, 10, 13, 4, 7]), each("hidden_norm.weight", torch.ones_like))),
    "second shard of another run": weights("", second_shard_of_vp),
    "compiled layers": weights("tensors", lambda w: {re.sub(r"^(layers\.\d)\.", r"\1._orig_mod.", n): t for n, t in w.items()}),
    "stale shards": Broken("", stale),
    "bits of bfloat16 as float16": weights("", lambda w: {n: t.view(torch.float16) for n, t in w.items()}),
    "last layer not written": Broken("", lambda out: copied(out, outer(num_hidden_layers=2, layer_types=["full_attention"] * 2), lambda w: {n: t for n, t in w.items() if "layers.2." not in n})),
    "norms without zero point": weights("", each("norm.weight", in_float(without_zero_point)), "vp"),
    "eagle3 heads": config("heads", outer(num_attention_heads=6, num_key_value_heads=2, head_dim=32), "eagle3"),
    "eagle3 fc by channel": weights("", each("fc.weight", lambda w: w.view(192, 3, 192).transpose(1, 2).reshape(192, 576)), "eagle3"),
    "eagle3 input norms": weights("", exchanged("input_layernorm", "hidden_norm"), "eagle3"),
    "eagle3 d2t ascending": half_vocabulary(IDS, IDS.sort().values),
    "eagle3 residual and norm": in_part("eagle3", lambda w: {**w, "norm.weight": target_norm()}, norm_before_residual=True),
    "eagle3 pruned": weights("", each(MATRICES, pruned), "eagle3"),
    "dspark Markov tables": weights("", exchanged("markov_w1", "markov_w2"), "dspark"),
    "dspark q of three ranks": weights("", each("q_proj.weight", lambda w: w.view(3, 64, 192)[[2, 0, 1]].reshape(192, 192)), "dspark"),
    "dspark new head": weights("", lambda w: {**w, "lm_head.weight": (torch.randn(4096, 192, generator=torch.Generator().manual_seed(3)) * 0.02).bfloat16()}, "dspark"),
    "dspark Markov scale": weights("", each("markov_w2.weight", scaled(8)), "dspark"),
    "dspark zeros in the file": Broken("", zero_chunk, part="dspark"),
    "dspark tables a row too low": weights("", both(each("markov_w1.weight", lambda w: w.roll(1, 0)), lambda w: {**w, "embed_tokens.weight": target_table().roll(1, 0)}), "dspark"),
}  # fmt: skip


def rescaled(w: Weights) -> Weights:
    """Multiplies matrices by powers of two. The norms or the next matrices undo them, so that the drafter stays sound."""
    factors = {"fc": 8, "q_proj": 2, "k_proj": 0.5, "v_proj": 4, "o_proj": 0.25, "q_norm": 2, "k_norm": 0.5, "up_proj": 2, "down_proj": 0.5}  # fmt: skip
    return {n: t * factors.get(n.split(".")[-2], 1) for n, t in w.items()}


def permuted_neurons(w: Weights) -> Weights:
    order, heads = torch.randperm(512, generator=torch.Generator().manual_seed(4)), [2, 0, 1]
    w = each(("gate_proj.weight", "up_proj.weight"), lambda x: x[order])(
        each("down_proj.weight", lambda x: x[:, order])(w)
    )
    w = each("q_proj.weight", lambda x: x.view(3, 64, 192)[heads].reshape(192, 192))(w)
    return {f"model.{n}": t for n, t in each("o_proj.weight", lambda x: x.view(192, 3, 64)[:, heads].reshape(192, 192))(w).items()}  # fmt: skip


def folded(w: Weights) -> Weights:
    """Multiplies the weights of the norms before the MLPs into gate and up, in float32, and sets these norms to 1."""
    w = {n: t.float() for n, t in w.items()}
    for n in range(3):
        norm = w[f"layers.{n}.post_attention_layernorm.weight"]
        w = each(("gate_proj.weight", "up_proj.weight"), lambda x, s=norm: x * s, n)(w)  # type: ignore[misc]
        w[f"layers.{n}.post_attention_layernorm.weight"] = torch.ones_like(norm)
    return w


def rotated_values(w: Weights) -> Weights:
    turn = torch.linalg.qr(torch.randn(64, 64, generator=torch.Generator().manual_seed(9)))[0]
    w = each("v_proj.weight", lambda x: turn @ x)({n: t.float() for n, t in w.items()})
    return each("o_proj.weight", lambda x: (x.view(192, 3, 64) @ turn.T).reshape(192, 192))(w)


def with_borrowed(w: Weights) -> Weights:
    """Adds copies of the target's embedding and LM head in float16, and renames the tensors as another tool does."""
    table = target_table()
    w = {("logit_head." + n if n.startswith("markov_head") else n): t for n, t in w.items()}
    w |= {"embed_tokens.weight": table, "lm_head.weight": table.clone(), "verifier_lm_head.weight": table.clone()}
    return {n: t.half() for n, t in w.items()}


def three_shards(out: Path) -> Path:
    copied(out, outer(dtype="float32"), lambda w: {n: t.float() for n, t in w.items()})
    sharded(out, 3)
    (out / "model.safetensors").unlink()
    return out


OUTSIDE_SOUND = {
    "three shards in float32": Broken("", three_shards),
    "speculators' layout": config("", speculators_form),
    "rescaled": weights("", rescaled),
    "neurons and heads permuted": weights("", permuted_neurons),
    "norms folded": weights("", folded),
    "eagle3 half vocabulary": half_vocabulary(IDS, IDS),
    "dspark with copies of tables": weights("", with_borrowed, "dspark"),
    "vp with rotated values": weights("", rotated_values, "vp"),
}
