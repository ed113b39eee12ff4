"""Edits of a drafter's weights that undo common conversion mistakes, in all layers and in each layer alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations
from math import log2
from statistics import median

import torch
from torch import Tensor

from d2sd.doctor.changes import TOKEN_IDS, Form, Kind, Variant, WeightEdit, weights_of
from d2sd.doctor.redraft import Drafter
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.target import Target

MOST_LAYERS = 8
# Tensors that have the same shape in most drafters, so that loading does not fail if they are swapped.
PAIRS = (
    ("mlp.gate_proj", "mlp.up_proj"), ("self_attn.k_proj", "self_attn.v_proj"), ("self_attn.q_proj", "self_attn.o_proj"),
    ("input_layernorm", "post_attention_layernorm"), ("self_attn.q_norm", "self_attn.k_norm"), ("input_layernorm", "hidden_norm"),
    ("hidden_norm", "post_attention_layernorm"),
)  # fmt: skip
MATRICES = tuple(f"self_attn.{p}_proj" for p in "qkvo") + tuple(f"mlp.{p}_proj" for p in ("gate", "up", "down"))
LAYER_NORMS = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")
MAX_TIMES = 1.5  # log2(RMS of a weight ÷ RMS of comparable weights) above which other scales are tried
MOST_TIMES = 16  # largest factor that is tried for ``hidden_norm``
PAIRS_OF_MODEL = (("hidden_norm", "norm"), ("markov_head.markov_w1", "markov_head.markov_w2"))
TABLES = ("embed_tokens", "embedding", "lm_head", "markov_head.markov_w1", "markov_head.markov_w2")
OUTPUTS = {"attention": "self_attn.o_proj", "MLP": "mlp.down_proj"}  # last projection of each sublayer

Edit = tuple[Kind, str, str, WeightEdit]  # kind, description, fix and edit of a variant


@dataclass(frozen=True, slots=True)
class _Network:
    """A drafter's weights, the name prefixes of its layers, and its numbers of heads."""

    weights: Mapping[str, Tensor]
    layers: tuple[str, ...]
    query_heads: int
    key_heads: int

    def names(self, part: str, layers: Sequence[str]) -> list[str]:
        return [n for at in layers if (n := f"{at}{part}.weight") in self.weights]

    def scopes(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yields all layers, then each layer alone, with words for a description."""
        yield "" if len(self.layers) == 1 else " in every layer", self.layers
        if 1 < len(self.layers) <= MOST_LAYERS:
            yield from ((f" in layer {n}", (at,)) for n, at in enumerate(self.layers))

    def is_square(self, name: str) -> bool:
        return self.weights[name].shape[0] == self.weights[name].shape[1]

    def same_shape(self, one: str, other: str) -> bool:
        return self.weights[one].shape == self.weights[other].shape


def weight_variants(model: Drafter, target: Target) -> list[Variant]:
    """Returns all variants of a drafter with edited weights."""
    if isinstance(model, DFlashDraftModel):
        layers, config = tuple(f"layers.{n}." for n in range(len(model.layers))), model.config
        form: Form = model.form
    else:
        layers, config, form = ("layer.",), model.config.layer, model.config
    net = _Network(weights_of(model), layers, config.num_attention_heads, config.num_key_value_heads)
    edits = chain(
        _exchanged_weights(net), _transposed(net), _reordered_heads(net), _shifted_norms(net), _reordered_layers(net),
        _tables(net, target), _shifted_map(net), _fc_by_tap(net, len(model.target_layer_ids)), _scaled(net), _scaled_feature_norm(net),
    )  # fmt: skip
    found = [Variant(kind, description, fix, form, edit) for kind, description, fix, edit in edits]
    for part, names in _removable(net):
        kind: Kind = "layer" if part.startswith("layer") else "sublayer"
        found.append(Variant(kind, f"{part} left out", None, form, _each(names, torch.zeros_like), left_out=part))
    return found


def _each(names: Sequence[str], change: Callable[[Tensor], Tensor]) -> WeightEdit:
    return lambda w: {n: change(w[n]) for n in names}


def _exchange(pairs: Iterable[tuple[str, str]]) -> WeightEdit:
    pairs = list(pairs)
    return lambda w: {a: w[b] for one, other in pairs for a, b in ((one, other), (other, one))}


def _exchanged_weights(net: _Network) -> Iterator[Edit]:
    for one, other in PAIRS:
        for where, layers in net.scopes():
            pairs = list(zip(net.names(one, layers), net.names(other, layers), strict=False))
            if len(layers) == 1 < len(net.layers) and "norm" in one:
                continue  # swapping norms in one layer also helps damaged drafters
            if pairs and len(pairs) == len(layers) and all(net.same_shape(*p) for p in pairs):
                names = f"{one.rpartition('.')[2]} and {other.rpartition('.')[2]}"
                yield "swapped", f"{names} swapped{where}", f"swap {names}{where}", _exchange(pairs)
    for pair in PAIRS_OF_MODEL:
        one, other = (f"{name}.weight" for name in pair)
        if {one, other} <= net.weights.keys() and net.same_shape(one, other):
            names = f"{one} and {other}"
            yield "swapped", f"{names} swapped", f"swap {names}", _exchange([(one, other)])
    if net.layers == ("layer.",):  # EAGLE-3 concatenates embedding and feature
        inputs = [n for part in "qkv" for n in net.names(f"self_attn.{part}_proj", net.layers)]
        description = "first and second half of the inputs of q, k and v swapped"
        fix = "swap the first half of the columns with the second half in q_proj, k_proj and v_proj"
        yield "swapped", description, fix, _each(inputs, lambda w: w.roll(w.shape[1] // 2, 1))


def _transposed(net: _Network) -> Iterator[Edit]:
    """Reinterprets the stored entries of matrices as column by column; for a square matrix, this is the transpose."""
    # matrices that are not square are changed only in all layers together
    scopes = [
        (part.rpartition(".")[2], where, names)
        for part in MATRICES
        for where, layers in net.scopes()
        if (names := net.names(part, layers)) and (layers == net.layers or net.is_square(names[0]))
    ]
    every = [n for n, w in net.weights.items() if w.dim() == 2 and n.startswith(net.layers)]
    for part, where, names in (*scopes, ("fc", "", ["fc.weight"]), ("all matrices of the layers", "", every)):
        if names:
            fix = f"transpose {part}{where}, or write the entries row by row"
            yield "transposed", f"{part} transposed{where}", fix, _each(names, _from_columns)


def _from_columns(weight: Tensor) -> Tensor:
    return weight.reshape(weight.shape[::-1]).T.contiguous()


def _fc_by_tap(net: _Network, taps: int) -> Iterator[Edit]:
    fc = net.weights.get("fc.weight")
    if fc is not None and taps > 1 and not fc.shape[1] % taps:
        description = "columns of fc reordered: grouped by tap, not by feature"
        edit = _each(["fc.weight"], lambda w: w.unflatten(1, (-1, taps)).transpose(1, 2).flatten(1))
        yield "taps", description, "reorder the columns of fc so that they are grouped by tap, not by feature", edit


def _scaled(net: _Network) -> Iterator[Edit]:
    """Rescales weights whose RMS differs much from the RMS of the same weights in other layers, or of all other matrices."""
    sizes = {n: float(w.double().pow(2).mean().sqrt()) for n, w in net.weights.items() if n.startswith(net.layers)}
    for part in (*MATRICES, *LAYER_NORMS):
        names = net.names(part, net.layers)
        if not names or min(sizes[n] for n in names) == 0:
            continue
        for name in names if len(names) > 1 else ():
            times = sizes[name] / median([sizes[n] for n in names if n != name])
            if abs(log2(times)) > MAX_TIMES:
                for by in dict.fromkeys((2.0 ** -round(log2(times)), 1 / times)):
                    yield _scale([name], by, name.removesuffix(".weight"))
        matrices = [sizes[n] for n in sizes if net.weights[n].dim() == 2 and n not in names]
        times = median([sizes[n] for n in names]) / median(matrices)
        if part in MATRICES and abs(log2(times)) > MAX_TIMES:
            for by in (2.0 ** (n - round(log2(times))) for n in (0, -1, 1)):
                yield _scale(names, by, f"every {part.rpartition('.')[2]}")


def _scaled_feature_norm(net: _Network) -> Iterator[Edit]:
    """Rescales ``hidden_norm`` if its median weight is far from the initial value 1. No other norm is comparable."""
    for name in ("hidden_norm.weight", "layer.hidden_norm.weight"):
        size = float(net.weights[name].double().abs().median()) if name in net.weights else 1.0
        if size and MAX_TIMES / 2 < abs(log2(size)) < log2(MOST_TIMES):
            times = sorted(range(2, MOST_TIMES + 1), key=lambda n: abs(abs(log2(size)) - log2(n)))[:3]
            yield from (_scale([name], 1 / n if size > 1 else n, name.removesuffix(".weight")) for n in times)


def _scale(names: Sequence[str], by: float, words: str) -> Edit:
    description = f"{words} times {by:.3g}"
    return "scale", description, description, _each(names, lambda w: w * by)


def pairs_to_halves(weight: Tensor, heads: int) -> Tensor:
    """Reorders the rows of every head from adjacent pairs into two halves, the order for transformers' RoPE."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def halves_to_pairs(weight: Tensor, heads: int) -> Tensor:
    """Inverse of ``pairs_to_halves``. llama.cpp's converter applies this inverse for some model types."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def _reordered_heads(net: _Network) -> Iterator[Edit]:
    heads = {"q": net.query_heads, "k": net.key_heads}
    for order, change in (("pairs into halves", pairs_to_halves), ("halves into pairs", halves_to_pairs)):
        for parts in ("qk", "q", "k"):
            counts = {n: heads[p] for p in parts for n in net.names(f"self_attn.{p}_proj", net.layers)}
            names = " and ".join(f"{p}_proj" for p in parts)
            rows = f"rows of {names} within each head"
            description = f"{rows} reordered from {order}"
            fix = f"reorder the {rows} from {order}, which undoes a GGUF conversion"
            yield "rotary", description, fix, _reorder(counts, change)


def _reorder(heads: Mapping[str, int], change: Callable[[Tensor, int], Tensor]) -> WeightEdit:
    return lambda w: {name: change(w[name], count) for name, count in heads.items()}


def _shifted_norms(net: _Network) -> Iterator[Edit]:
    """Shifts the weights of norms by 1, only towards the value 1. Shifts away from 1 also help damaged drafters."""
    every = [n for n, w in net.weights.items() if w.dim() == 1 and n.endswith("norm.weight")]
    groups = {
        "all norms": every,
        "input and post-attention norms": [n for n in every if n.endswith("layernorm.weight")],
    }
    for group, names in groups.items():
        medians = [float(net.weights[n].float().median()) for n in names]
        for by in (1.0, -1.0):
            if sum(_strangeness(m + by) - _strangeness(m) for m in medians) < 0:
                change = "add 1 to" if by > 0 else "subtract 1 from"
                fix = f"{change} the weights of {group} (norms of some model types multiply by weight + 1)"
                yield "norms", f"weights of {group} {by:+g}", fix, _each(names, partial(torch.add, other=by))


def _strangeness(median: float) -> float:
    """Returns the distance of a norm's median weight from 1, its initial value, in powers of two."""
    return abs(log2(max(median, 1e-3)))


def _reordered_layers(net: _Network) -> Iterator[Edit]:
    own = tuple(range(len(net.layers)))
    orders = {own[by:] + own[:by]: f"layers rotated by {by}" for by in own[1:]} | {own[::-1]: "layers in reverse order"}
    for one, other in combinations(own, 2):
        exchanged = tuple({one: other, other: one}.get(n, n) for n in own)
        orders[exchanged] = f"layers {one} and {other} swapped"
    for order, words in orders.items() if 1 < len(own) <= MOST_LAYERS else ():
        places = zip(net.layers, order, strict=True)
        sources = {n: net.layers[source] + n.removeprefix(at) for at, source in places for n in net.weights if n.startswith(at)}  # fmt: skip
        yield "order", words, f"put the layers into this order: {list(order)}", lambda w, s=sources: {n: w[other] for n, other in s.items()}  # type: ignore[misc]  # fmt: skip


def _tables(net: _Network, target: Target) -> Iterator[Edit]:
    ids = net.weights.get(TOKEN_IDS)
    for part in TABLES:
        name = f"{part}.weight"
        if (own := net.weights.get(name)) is None:
            continue
        if not part.startswith("markov_head"):
            table = (target.head if part == "lm_head" else target.embedding).weight
            if part == "lm_head" and ids is not None and len(ids) == len(own):
                table = table[ids.to(table.device)]
            if table.shape == own.shape and not table.is_meta:
                fix = f"replace {part} by the target's, or leave it out"
                yield "tables", f"the target's own {part}", fix, _each([name], table.to)
        for by in (1, -1):
            description = f"rows of {part} shifted by {by:+d}"
            yield "tables", description, description, _each([name], partial(torch.roll, shifts=by, dims=0))


def _shifted_map(net: _Network) -> Iterator[Edit]:
    ids = net.weights.get(TOKEN_IDS)
    if ids is None or bool((ids == torch.arange(len(ids), device=ids.device)).all()):
        return
    for by in (1, -1):
        edit = _each([TOKEN_IDS], lambda ids, by=by: (ids + by).clamp_min(0))  # type: ignore[misc]
        yield "map", f"d2t {by:+d}", f"d2t {by:+d} for every token", edit


def _removable(net: _Network) -> Iterator[tuple[str, list[str]]]:
    """Yields every attention block, MLP and layer, with the names of the weights that disable it when set to 0."""
    if len(net.layers) > MOST_LAYERS:
        return
    for number, at in enumerate(net.layers):
        ends = {part: f"{at}{end}.weight" for part, end in OUTPUTS.items()}
        yield from ((f"the {part} of layer {number}", [end]) for part, end in ends.items())
        if len(net.layers) > 1:
            yield f"layer {number}", list(ends.values())
