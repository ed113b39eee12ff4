"""Weight changes that undo common conversion mistakes, for all layers and for each layer alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from d2sd.doctor.changes import TOKEN_IDS, Edit, Form, Kind, Variant, Weights, weights_of
from d2sd.models.drafter import DFlashDraftModel
from d2sd.models.eagle3 import Eagle3DraftModel
from d2sd.models.target import Target

MOST_LAYERS = 8
ATTENTION, MLP = "self_attn.", "mlp."
# Tensors that have one shape in most drafters, so that nothing notices where they stand in each other's place.
PAIRS = (
    ("mlp.gate_proj", "mlp.up_proj"), ("self_attn.k_proj", "self_attn.v_proj"), ("self_attn.q_proj", "self_attn.o_proj"),
    ("input_layernorm", "post_attention_layernorm"), ("self_attn.q_norm", "self_attn.k_norm"), ("input_layernorm", "hidden_norm"),
    ("hidden_norm", "post_attention_layernorm"),
)  # fmt: skip
TABLES = ("embed_tokens", "embedding", "lm_head", "markov_head.markov_w1", "markov_head.markov_w2")
ENDS = {"attention": "self_attn.o_proj", "MLP": "mlp.down_proj"}  # what a sublayer's output goes through


@dataclass(frozen=True, slots=True)
class _Net:
    """A drafter's weights: names by layer, and head sizes."""

    weights: Weights
    layers: tuple[str, ...]
    form: Form
    heads: int
    kept: int

    def named(self, part: str, layers: Sequence[str]) -> list[str]:
        """Returns the weights of this part in these layers that exist."""
        return [n for at in layers if (n := f"{at}{part}.weight") in self.weights]

    def scopes(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Returns all layers, then each alone."""
        yield "" if len(self.layers) == 1 else " in every layer", self.layers
        if 1 < len(self.layers) <= MOST_LAYERS:
            yield from ((f" in layer {n}", (at,)) for n, at in enumerate(self.layers))


def undoings(model: DFlashDraftModel | Eagle3DraftModel, target: Target) -> list[Variant]:
    """Yields all weight changes to try on a drafter for this target."""
    if isinstance(model, DFlashDraftModel):
        layers = tuple(f"layers.{n}." for n in range(len(model.layers)))
        config: Any = model.config
        form: Form = model.form
    else:
        layers, config, form = ("layer.",), model.config.layer, model.config
    net = _Net(weights_of(model), layers, form, config.num_attention_heads, config.num_key_value_heads)
    found = [*_swapped(net), *_transposed(net), *_rotary(net), *_norms(net), *_order(net), *_tables(net, target), *_map(net)]  # fmt: skip
    return found + list(_left_out(net))


def _variant(net: _Net, kind: Kind, said: str, mend: str, edit: Edit) -> Variant:
    return Variant(kind, said, mend, net.form, edit)


def exchanged(pairs: Sequence[tuple[str, str]]) -> Edit:
    """Returns a change that swaps the two weights of each pair."""
    return lambda w: {a: w[b] for one, other in pairs for a, b in ((one, other), (other, one))}


def _swapped(net: _Net) -> Iterator[Variant]:
    def alike(a: str, b: str) -> bool:
        return net.weights[a].shape == net.weights[b].shape

    for one, other in PAIRS:
        for where, layers in net.scopes():
            pairs = list(zip(net.named(one, layers), net.named(other, layers), strict=False))
            if pairs and len(pairs) == len(layers) and all(alike(*p) for p in pairs):
                names = f"{one.rpartition('.')[2]} and {other.rpartition('.')[2]}"
                yield _variant(
                    net, "swapped", f"{names} exchanged{where}", f"exchange {names}{where}", exchanged(pairs)
                )
    for one, other in (
        ("hidden_norm.weight", "norm.weight"),
        ("markov_head.markov_w1.weight", "markov_head.markov_w2.weight"),
    ):
        if {one, other} <= net.weights.keys() and alike(one, other):
            yield _variant(net, "swapped", f"{one} and {other} exchanged", f"exchange {one} and {other}", exchanged([(one, other)]))  # fmt: skip
    inputs = [n for part in "qkv" for n in net.named(f"self_attn.{part}_proj", net.layers)]
    if net.layers == ("layer.",):  # EAGLE-3 reads embedding and feature side by side
        yield _variant(
            net, "swapped", "halves of the inputs of q, k and v exchanged",
            "exchange the halves of the columns of q_proj, k_proj and v_proj",
            lambda w: {n: w[n].roll(w[n].shape[1] // 2, 1) for n in inputs},
        )  # fmt: skip


def _transposed(net: _Net) -> Iterator[Variant]:
    for part in ("self_attn.q_proj", "self_attn.o_proj", "self_attn.k_proj", "self_attn.v_proj"):
        for where, layers in net.scopes():
            names = net.named(part, layers)
            if names and all(net.weights[n].shape[0] == net.weights[n].shape[1] for n in names):
                said = f"{part.rpartition('.')[2]} transposed{where}"
                yield _variant(net, "transposed", said, f"transpose {part}{where}", _each(names, lambda w: w.T.contiguous()))  # fmt: skip


def _each(names: Sequence[str], change: Any) -> Edit:
    return lambda w: {n: change(w[n]) for n in names}


def halved(weight: Tensor, heads: int) -> Tensor:
    """Reorders the rows of every head from adjacent pairs into two halves, as PyTorch's RoPE expects them."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def paired(weight: Tensor, heads: int) -> Tensor:
    """The inverse: halves into pairs, as llama.cpp's converter does for some types."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def _changed_heads(
    heads: Mapping[str, int], change: Callable[[Tensor, int], Tensor], weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Matrices with their rows in another order within each of their heads."""
    return {name: change(weights[name], count) for name, count in heads.items()}


def _with_table(name: str, table: Tensor, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Replaces one table, keeping its type."""
    return {name: table.to(weights[name])}


def _rotary(net: _Net) -> Iterator[Variant]:
    counts = {"q": net.heads, "k": net.kept}
    for said, change in (("pairs into halves", halved), ("halves into pairs", paired)):
        for parts in ("qk", "q", "k"):
            heads = {n: counts[p] for p in parts for n in net.named(f"self_attn.{p}_proj", net.layers)}
            names = " and ".join(f"{p}_proj" for p in parts)
            edit = partial(_changed_heads, heads, change)
            text = f"rows of {names} within each head from {said}"
            yield _variant(net, "rotary", text, f"order the {text}, as a GGUF conversion undone", edit)


def _norms(net: _Net) -> Iterator[Variant]:
    every = [n for n, w in net.weights.items() if w.dim() == 1 and n.endswith("norm.weight")]
    heads = [n for n in every if n.endswith(("q_norm.weight", "k_norm.weight"))]
    rest = [n for n in every if n not in heads]
    layers = [n for n in rest if n.endswith("layernorm.weight")]
    groups = {
        "all norms": every,
        "norms of queries and keys": heads,
        "the other norms": rest,
        "input and post-attention norms": layers,
    }
    seen: list[list[str]] = []
    for said, names in groups.items():
        if not names or names in seen:
            continue
        seen.append(names)
        for by in (1.0, -1.0):
            text = f"{by:+g} on the weights of {said}"
            why = "add 1 to" if by > 0 else "take 1 off"
            yield _variant(net, "norms", text, f"{why} the weights of {said} (a type with weight + 1 was meant)", _each(names, lambda w, by=by: w + by))  # fmt: skip


def _order(net: _Net) -> Iterator[Variant]:
    if not 2 <= len(net.layers) <= MOST_LAYERS:
        return
    for one, other in combinations(range(len(net.layers)), 2):
        first, second = net.layers[one], net.layers[other]
        names = [(n, second + n.removeprefix(first)) for n in net.weights if n.startswith(first)]
        said = f"layers {one} and {other} exchanged"
        yield _variant(net, "order", said, f"exchange the weights of layers {one} and {other}", exchanged(names))


def _tables(net: _Net, target: Target) -> Iterator[Variant]:
    ids = net.weights.get(TOKEN_IDS)
    theirs: dict[str, Tensor] = {}
    for part in TABLES:
        name = f"{part}.weight"
        if (own := net.weights.get(name)) is None:
            continue
        if part in ("embed_tokens", "embedding", "lm_head"):
            table = (target.head if part == "lm_head" else target.embedding).weight
            if part == "lm_head" and ids is not None and len(ids) == len(own):
                table = table[ids.to(table.device)]
            if table.shape == own.shape and not table.is_meta:
                theirs[name] = table
                edit = partial(_with_table, name, table)
                yield _variant(net, "tables", f"the target's own {part}", f"the target's {part}, or none", edit)
        for by in (1, -1):
            said = f"rows of {part} moved by {by:+d}"
            yield _variant(net, "tables", said, said, _each([name], lambda w, by=by: w.roll(by, 0)))


def _map(net: _Net) -> Iterator[Variant]:
    ids = net.weights.get(TOKEN_IDS)
    if ids is None or bool((ids == torch.arange(len(ids), device=ids.device)).all()):
        return
    for by in (1, -1):
        yield _variant(net, "map", f"d2t {by:+d}", f"d2t {by:+d} for every token", _each([TOKEN_IDS], lambda w, by=by: (w + by).clamp_min(0)))  # fmt: skip


def _left_out(net: _Net) -> Iterator[Variant]:
    """A layer, or its attention or its MLP alone, without effect: its output becomes 0."""
    if len(net.layers) > MOST_LAYERS:
        return
    for number, at in enumerate(net.layers):
        ends = {what: f"{at}{end}.weight" for what, end in ENDS.items()}
        parts: Mapping[str, list[str]] = {f"the {what} of layer {number}": [end] for what, end in ends.items()}
        if len(net.layers) > 1:
            parts = {**parts, f"layer {number}": list(ends.values())}
        for what, names in parts.items():
            kind: Kind = "layer" if what.startswith("layer") else "sublayer"
            yield Variant(kind, f"{what} left out", None, net.form, _each(names, torch.zeros_like), without=what)
