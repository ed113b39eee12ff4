"""One variant of a drafter: a changed reading of its weights, or changed weights, and the config line for it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, Literal

import torch
from torch import Tensor, nn

from d2sd.folders.drafters import LAYERS
from d2sd.methods.base import MAX_BLOCK
from d2sd.nets.drafter import DFlashDraftModel, default_target_layers, plain_rope
from d2sd.nets.eagle3 import Eagle3Config, Eagle3DraftModel
from d2sd.nets.layouts import DrafterForm
from d2sd.nets.target import Target

Kind = Literal[
    "taps", "mask", "rope", "window", "causal", "reads", "rows", "layer", "sublayer", "dtype", "rotary", "swapped", "transposed",
    "norms", "order", "tables", "map", "head_dim", "residual", "output",
]  # fmt: skip
Form = DrafterForm | Eagle3Config
Drafter = DFlashDraftModel | Eagle3DraftModel
Weights = Mapping[str, Tensor]
Edit = Callable[[Weights], dict[str, Tensor]]
Rewrite = Callable[[dict[str, Any]], dict[str, Any]]

WORTH = 0.02
TOKEN_IDS = "token_ids"  # among weights: the target's ids of a draft vocabulary
# Where a drafter is broken in another way, these often make it a little better, so that a gain alone proves nothing.
SOFT: frozenset[Kind] = frozenset({"mask", "rope", "window", "causal", "layer", "sublayer", "output", "norms"})


@dataclass(frozen=True, slots=True)
class Variant:
    """A drafter with one change.

    said: the change, in a few words.
    mend: what to change in the folder; None if nothing there would undo it.
    form: how its weights are read.
    edit: maps all weights to the changed ones, by our names.
    rewrite: maps the folder's config to a changed one; None if it is unchanged, or cannot express the change.
    without: layers that are left out, or parts of one.
    widened: whether its weights are read in float32.
    worth: relative gain from which on it is reported.
    """

    kind: Kind
    said: str
    mend: str | None
    form: Form
    edit: Edit | None = None
    rewrite: Rewrite | None = None
    without: str | None = None
    widened: bool = False
    worth: float = WORTH

    @property
    def key(self) -> object:
        """Identifies the change."""
        form = self.form
        read = form if isinstance(form, DrafterForm) else (form.layer.to_dict(), replace(form, layer=None))
        return read, self.widened, self.said if self.edit is not None else ""

    @property
    def soft(self) -> bool:
        """Returns whether it may help although another fault is the cause."""
        return self.kind in SOFT

    @property
    def writable(self) -> bool:
        """Returns whether a folder with this change can be written."""
        return self.without is None and (self.edit is not None or self.rewrite is not None)

    def of(self, model: Any) -> Any:
        """Returns the drafter with this change; unchanged weights are shared."""
        other = _shared(model)
        _reform(other, self.form)
        if self.edit is not None:
            for name, weight in self.edit(weights_of(other)).items():
                _put(other, name, weight)
        return copy.deepcopy(other).float() if self.widened else other


def weights_of(model: Drafter) -> dict[str, Tensor]:
    """Returns all weights by our names, and the ids of the draft vocabulary if it has one."""
    found: dict[str, Tensor] = dict(model.named_parameters())
    if model.token_ids is not None:
        found[TOKEN_IDS] = model.token_ids
    return found


def keys(changed: Mapping[str, Any]) -> Rewrite:
    """A config with these keys, dots between an object and what is in it; None takes a key out."""

    def rewrite(config: dict[str, Any]) -> dict[str, Any]:
        config = copy.deepcopy(config)
        for path, value in changed.items():
            *outer, last = path.split(".")
            inner = config
            for part in outer:
                inner = inner.setdefault(part, {})
            if value is None:
                inner.pop(last, None)
            else:
                inner[last] = value
        return config

    return rewrite


def line(changed: Mapping[str, Any]) -> str:
    """Returns the same keys as a line for people."""
    there = ", ".join(f"{path}: {json.dumps(value)}" for path, value in changed.items() if value is not None)
    gone = [path for path, value in changed.items() if value is None]
    return there + (f" (and no {', no '.join(gone)})" if gone else "")


def _shared(module: Any) -> Any:
    """The same modules anew, around the same weights; a deep copy would take as long as the drafting."""
    other = copy.copy(module)
    for part in ("_parameters", "_buffers"):
        other.__dict__[part] = dict(module.__dict__[part])
    other.__dict__["_modules"] = {name: inner and _shared(inner) for name, inner in module.__dict__["_modules"].items()}
    return other


def _reform(model: Any, form: Form) -> None:
    """Let a model of its own modules read its weights by this convention."""
    if isinstance(form, DrafterForm):
        model.__dict__.update(model.reformed(form).__dict__)
        return
    model.config = form
    model.layer.norm_before_residual = form.norm_before_residual
    model.layer.self_attn.head_dim = form.head_dim
    model.rotary_emb = type(model.rotary_emb)(form.layer).to(model.device)


def _put(model: Any, name: str, weight: Tensor) -> None:
    if name == TOKEN_IDS:
        model.token_ids = weight
        return
    owner, _, last = name.rpartition(".")
    setattr(model.get_submodule(owner), last, nn.Parameter(weight, requires_grad=False))


# Weight changes that undo common conversion mistakes, for all layers and for each layer alone.


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


# Variants of a block drafter: one changed setting each, with the config line that would express it.


SHIFTS = (-1, 1, -2, 2, -3, 3)
BASES = (1e4, 1e5, 5e5, 1e6, 5e6, 1e7)  # of published models
WINDOWS = (32, 128, 512, 1024, 2048, 4096)
ROWS = (4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
WORTH_LONGER = 0.04  # some drafters draft a little further than they were trained for
RESERVED = 300  # special tokens that are looked at as mask tokens


def variants(model: DFlashDraftModel, target: Target, longest: int, whole: bool) -> list[Variant]:
    """Returns all variants of a drafter but mask tokens, each once.

    longest: number of tokens of the longest text.
    whole: whether some drafts are accepted completely, so that longer ones may help.
    """
    form, layers = model.form, target.config.num_hidden_layers
    found = [
        *_taps(form, layers),
        *_rope(form, target.config),
        *_attention(form, longest),
        *_reads(form),
        *_rows(form, whole),
        *undoings(model, target),
    ]
    if model.dtype.itemsize < 4:
        said = "the drafter's weights in float32"
        found.append(Variant("dtype", said, "run with --dtype float32", form, widened=True))
    return each_once(found, Variant("taps", "", None, form))


def each_once(found: Sequence[Variant], given: Variant) -> list[Variant]:
    """Returns the variants that differ from each other and from the given drafter."""
    seen, once = [given.key], []
    for variant in found:
        if variant.key not in seen:
            seen.append(variant.key)
            once.append(variant)
    return once


def tapped(found: Sequence[Variant], form: DrafterForm) -> set[int]:
    """Returns all target layers that some of them read."""
    return {n for f in (form, *(v.form for v in found)) if isinstance(f, DrafterForm) for n in f.taps}


def mask_tokens(form: DrafterForm, target: Target) -> list[int]:
    """Returns candidates for the mask token: special tokens, the first and last unused ids, neighbouring ids."""
    tokenizer, size = target.tokenizer, target.config.vocab_size
    special = sorted(n for n, token in tokenizer.added_tokens_decoder.items() if token.special)[:RESERVED]
    others = [len(tokenizer), len(tokenizer) - 1, size - 1, form.mask_token - 1, form.mask_token + 1]
    named = [tokenizer.mask_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id]
    wanted = dict.fromkeys(n for n in (*named, *special, *others) if n is not None and 0 <= n < size)
    return [n for n in wanted if n != form.mask_token]


def with_mask(form: DrafterForm, token: int, text: str) -> Variant:
    """Returns the variant with another mask token, given its text."""
    changed = {_key(form, "mask_token_id"): token}
    return _read("mask", f"mask token {token} ({text})", changed, replace(form, mask_token=token))


def _read(kind: Kind, said: str, changed: dict[str, Any], form: DrafterForm, **more: Any) -> Variant:
    return Variant(kind, said, line(changed), form, rewrite=keys(changed), **more)


def other_taps(taps: Sequence[int], layers: int) -> Iterator[tuple[str, list[int]]]:
    """Returns other target layers that a drafter may have been trained with, with descriptions: all shifted, reordered, evenly
    spaced, and each one shifted alone."""
    found = [(f"every tap {by:+d}", [n + by for n in taps]) for by in SHIFTS]
    found += [("taps in ascending order", sorted(taps)), ("taps in reverse order", list(taps[::-1]))]
    even = default_target_layers(layers, len(taps))
    if len(even) == len(taps):
        found.append(("taps spread evenly up to L − 3", even))
    for one, other in combinations(range(len(taps)), 2):
        order = list(taps)
        order[one], order[other] = order[other], order[one]
        found.append((f"taps {taps[one]} and {taps[other]} exchanged", order))
    for at, tap in enumerate(taps):
        for by in SHIFTS[:4]:
            found.append((f"tap {tap} as {tap + by}", [*taps[:at], tap + by, *taps[at + 1 :]]))
    yield from ((said, other) for said, other in found if min(other) >= 0 and max(other) < layers)


def _taps(form: DrafterForm, layers: int) -> Iterator[Variant]:
    for said, taps in other_taps(form.taps, layers):
        yield _read("taps", f"{said}: {taps}", _taps_keys(form, taps), replace(form, taps=tuple(taps)))


def taps_line(form: DrafterForm, taps: Sequence[int]) -> str:
    """Returns the config line for these layers."""
    return line(_taps_keys(form, taps))


def _taps_keys(form: DrafterForm, taps: Sequence[int]) -> dict[str, Any]:
    """Returns the config keys for these layers; speculators counts a layer by its input."""
    if form.layout == "speculators":
        return {"aux_hidden_state_layer_ids": [n + 1 for n in taps]}
    return {_key(form, "target_layer_ids"): list(taps)}


def other_ropes(own: dict[str, Any], target: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Returns other rotary embeddings: the target's, usual bases, and the drafter's without scaling."""
    theirs = plain_rope(target)
    yield f"the target's RoPE (base {theirs.get('rope_theta'):g})", theirs
    for base in BASES:
        yield f"RoPE base {base:g}, unscaled", {"rope_theta": base, "rope_type": "default"}
    if own.get("rope_type") != "default":
        yield "RoPE unscaled", {"rope_theta": own["rope_theta"], "rope_type": "default"}


def _rope(form: DrafterForm, target: Any) -> Iterator[Variant]:
    at = _place(form)
    for said, rope in other_ropes(dict(form.shape["rope_parameters"]), target):
        changed = {f"{at}rope_parameters": rope, f"{at}rope_theta": None, f"{at}rope_scaling": None}
        yield _read("rope", said, changed, replace(form, shape={**form.shape, "rope_parameters": rope}))


def _attention(form: DrafterForm, longest: int) -> Iterator[Variant]:
    count, at = len(form.windows), _place(form)
    off, both = (None,) * count, (False,) * count
    full: dict[str, Any] = {f"{at}layer_types": ["full_attention"] * count, f"{at}sliding_window": None}
    if any(w is not None for w in form.windows):
        if form.layout == "nested":
            full["dflash_config.use_swa"] = None
        bidirectional = {**full, **_causal_key(form, False)}
        yield _read(
            "window", "no window, bidirectional in the block", bidirectional, replace(form, windows=off, causal=both)
        )
        kept = {**full, **_causal_key(form, any(form.causal))}
        yield _read("window", "no window, the rest as it is", kept, replace(form, windows=off))
    else:
        for width in WINDOWS:
            if width < longest:
                changed = {f"{at}layer_types": ["sliding_attention"] * count, f"{at}sliding_window": width, **_causal_key(form, any(form.causal))}  # fmt: skip
                yield _read("window", f"a window of {width} in all layers", changed, replace(form, windows=(width,) * count))  # fmt: skip
    for causal in (False, True):
        said = "rows see no later row of their block" if causal else "rows see the whole block"
        yield _read("causal", said, _causal_key(form, causal), replace(form, causal=(causal,) * count))


def _causal_key(form: DrafterForm, causal: bool) -> dict[str, Any]:
    return {"sliding_window_non_causal": not causal} if form.layout == "speculators" else {"is_causal": causal}


def _reads(form: DrafterForm) -> Iterator[Variant]:
    lines = {
        ("fill", "speculators"): ("sample_from_anchor: false", keys({"sample_from_anchor": False})),
        ("fill", "flat"): ("the nested layout of DFlash (dflash_config), since a flat one always reads next", _nest),
        ("fill", "nested"): ('architectures: ["DFlashDraftModel"], since DSpark always reads next', None),
        ("next", "speculators"): ("sample_from_anchor: true", keys({"sample_from_anchor": True})),
        ("next", "nested"): ("the flat layout of DeepSpec (all keys at the top), whose rows read next", _flatten),
    }
    said = {"fill": "a row is about its own position (fill)", "next": "a row is about the position after it (next)"}
    other: Any = "fill" if form.reads == "next" else "next"
    mend, rewrite = lines.get((other, form.layout), (None, None))
    yield Variant("reads", said[other], mend, replace(form, reads=other), rewrite=rewrite)


OWN = ("mask_token_id", "target_layer_ids")  # keys that DFlash keeps in an object of their own


def _nest(config: dict[str, Any]) -> dict[str, Any]:
    inner = {name: config[name] for name in OWN}
    rest = {k: v for k, v in config.items() if k not in OWN}
    return {**rest, "architectures": ["DFlashDraftModel"], "dflash_config": inner}


def _flatten(config: dict[str, Any]) -> dict[str, Any]:
    rest = {k: v for k, v in config.items() if k != "dflash_config"}
    return {**rest, **config["dflash_config"], "architectures": ["Qwen3DSparkModel"]}


def _rows(form: DrafterForm, whole: bool) -> Iterator[Variant]:
    for rows in ROWS:
        fits = rows < form.rows or (whole and form.rows < rows <= min(2 * form.rows, MAX_BLOCK - 1))
        if fits:
            said = f"{rows} rows a block, {rows - 1 + form.shift} guesses a step"
            worth = WORTH_LONGER if rows > form.rows else WORTH
            yield _read("rows", said, {"block_size": rows}, replace(form, rows=rows), worth=worth)


def _key(form: DrafterForm, name: str) -> str:
    return f"dflash_config.{name}" if form.layout == "nested" else name


def _place(form: DrafterForm) -> str:
    return "transformer_layer_config." if form.layout == "speculators" else ""


# Other ways to read an EAGLE-3 drafter's weights.


def eagle3_variants(model: Eagle3DraftModel, target: Target) -> list[Variant]:
    """Returns every variant of an EAGLE-3 drafter, each once."""
    form = model.config
    found = [
        *_eagle3_taps(form, target),
        *_eagle3_rope(form, target),
        *_flags(form),
        *_heads(form, target),
        *undoings(model, target),
    ]
    return each_once(found, Variant("taps", "", None, form))


def _read_eagle3(kind: Kind, said: str, changed: dict[str, Any], form: Eagle3Config) -> Variant:
    return Variant(kind, said, line(changed), form, rewrite=keys(changed))


def _shaped(kind: Kind, said: str, changed: dict[str, Any], form: Eagle3Config) -> Variant:
    """Of keys of its layer, which speculators keep in an object of their own."""

    def rewrite(config: dict[str, Any]) -> dict[str, Any]:
        at = "transformer_layer_config." if "transformer_layer_config" in config else ""
        return keys({f"{at}{name}": value for name, value in changed.items()})(config)

    return Variant(
        kind, said, line(changed), _layer(form, **{k: v for k, v in changed.items() if v is not None}), rewrite=rewrite
    )


def _eagle3_taps(form: Eagle3Config, target: Target) -> Iterator[Variant]:
    for said, taps in other_taps(form.target_layer_ids, target.config.num_hidden_layers):
        mend = f"{LAYERS}: {taps} in eagle_config, or each one more beside it"
        other = replace(form, target_layer_ids=tuple(taps))
        yield Variant("taps", f"{said}: {taps}", mend, other, rewrite=partial(_with_taps, taps))


def _with_taps(taps: list[int], config: dict[str, Any]) -> dict[str, Any]:
    """In ``eagle_config`` layers are numbered by their outputs, beside it by their inputs."""
    if "eagle_config" in config:
        return keys({f"eagle_config.{LAYERS}": taps, LAYERS: None})(config)
    return keys({LAYERS: [n + 1 for n in taps]})(config)


def _layer(form: Eagle3Config, **changed: Any) -> Eagle3Config:
    layer = copy.deepcopy(form.layer)
    for name, value in changed.items():
        setattr(layer, name, value)
    return replace(form, layer=layer)


def _eagle3_rope(form: Eagle3Config, target: Target) -> Iterator[Variant]:
    for said, rope in other_ropes(dict(form.layer.rope_parameters), target.config):
        yield _shaped("rope", said, {"rope_parameters": rope, "rope_theta": None, "rope_scaling": None}, form)


def _flags(form: Eagle3Config) -> Iterator[Variant]:
    before, output = not form.norm_before_residual, not form.norm_output
    said = "the residual is the normed feature" if before else "the residual is the feature as it is"
    yield _read_eagle3("residual", said, {"norm_before_residual": before}, replace(form, norm_before_residual=before))
    said = (
        "deeper levels read the final norm's output" if output else "deeper levels read what is before the final norm"
    )
    yield _read_eagle3("output", said, {"norm_output": output}, replace(form, norm_output=output))


def _heads(form: Eagle3Config, target: Target) -> Iterator[Variant]:
    """Heads of another size, as many as the same matrices hold; norms of queries and keys would tell their size."""
    if form.qk_norm:
        return
    own, c = form.head_dim, form.layer
    theirs = int(
        getattr(target.config, "head_dim", None) or target.config.hidden_size // target.config.num_attention_heads
    )
    queries, kept = c.num_attention_heads * own, c.num_key_value_heads * own
    for size in dict.fromkeys((theirs, 2 * own, own // 2, 4 * own, 64, 128)):
        if size < 2 or size % 2 or size == own or queries % size or kept % size:
            continue
        sizes = {"head_dim": size, "num_attention_heads": queries // size, "num_key_value_heads": kept // size}
        yield _shaped("head_dim", f"heads of size {size}, {queries // size} of them", sizes, form)
