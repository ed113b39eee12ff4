"""All changes that are tried on a drafter: other settings, features or blocks at other positions, and edits of the weights.

The only edits of weights are those that undo what converters do to all layers alike. A fault in a single part of the weights cannot
be guessed; it can be found by exchanging parts with a good drafter (``d2sd.doctor.exchange``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import log2
from typing import Any

from torch import Tensor

from d2sd.doctor.changes import Variant, WeightEdit, weights_of
from d2sd.doctor.settings import Config, Setting, config_line, config_values, settings_of, with_setting
from d2sd.nets.drafter import plain_rope
from d2sd.nets.layouts import DrafterForm, Eagle3Form, Form
from d2sd.nets.target import Target
from d2sd.replay.anchors import Drafter

SHIFTS = (-1, 1, -2, 2, -3, 3)
BASES = (1e4, 1e5, 5e5, 1e6, 5e6, 1e7)  # RoPE bases of published models
WINDOWS = (32, 128, 512, 1024, 2048, 4096)
HEAD_SIZES = (32, 64, 96, 128, 256)
MOST_MASKS = 30  # tokens that are tried as mask tokens


def variants(model: Drafter, target: Target, longest: int, raw: Config) -> list[Variant]:
    """Returns all distinct variants of a drafter.

    longest: number of tokens of the longest text; larger windows are not tried.
    raw: the drafter's published config.
    """
    form = model.form
    readings = [_reading(form, raw, *reading) for reading in _readings(form, target, longest)]
    tried = [*readings, *_displaced(form), *_conversions(model, form)]
    distinct = {variant.key: variant for variant in reversed(tried)}
    distinct.pop(Variant("taps", "", form).key, None)
    return list(reversed(distinct.values()))


def mask_tokens(form: DrafterForm, target: Target) -> list[int]:
    """Returns tokens that could be the mask token: special tokens, the last ids, the first unused id, and the neighbours of the
    current id.
    """
    tokenizer, size = target.tokenizer, target.config.vocab_size
    special = sorted(n for n, token in tokenizer.added_tokens_decoder.items() if token.special)
    others = [len(tokenizer), len(tokenizer) - 1, size - 1, form.mask_token - 1, form.mask_token + 1]
    candidates = dict.fromkeys([tokenizer.mask_token_id, tokenizer.pad_token_id, *others, *special])
    return [n for n in candidates if n is not None and 0 <= n < size][:MOST_MASKS]


# Readings: each changes one setting and the config keys that express it.


def _reading(form: Form, raw: Config, name: Setting, description: str, value: Any, common: bool = False) -> Variant:
    other = with_setting(form, name, value)
    values = config_values(other, name, raw)
    return Variant(name, description, other, values, fix=config_line(values) if values else None, common=common)


def _readings(form: DrafterForm | Eagle3Form, target: Target, longest: int) -> Iterator[tuple[Any, ...]]:
    """Yields the arguments of ``_reading``: name of the setting, description of the change, new value, and whether it is a common
    mistake.
    """
    values = settings_of(form)
    for description, taps, common in _other_taps(values["taps"], target.config.num_hidden_layers):
        yield "taps", description, tuple(taps), common
    target_rope = plain_rope(target.config)
    for description, rope in _other_ropes(values["rope"], target_rope):
        yield "rope", description, rope, rope == target_rope
    eps = getattr(target.config, "rms_norm_eps", None)
    if eps is not None:
        yield "eps", f"the target's rms_norm_eps ({eps:g})", eps, True
    if isinstance(form, DrafterForm):
        for description, attention in _other_attention(form, longest):
            yield "attention", description, attention
        reads = "fill" if form.reads == "next" else "next"
        other = "its own position" if reads == "fill" else "the next position"
        yield "reads", f"the {reads} convention (a row predicts {other})", reads, True
        for token in mask_tokens(form, target):
            text = repr(target.tokenizer.convert_ids_to_tokens(token))[:24]
            yield "mask", f"mask token {token} ({text})", token, token == target.tokenizer.mask_token_id
        return
    before, output = not form.norm_before_residual, not form.norm_output
    yield "residual", f"the feature {'after' if before else 'before'} its norm as the residual", before
    yield "output", f"the {'output' if output else 'input'} of the final norm as input of deeper levels", output
    for heads in _other_heads(form):
        yield "heads", f"{heads[1]} heads of size {heads[0]}", heads


def _other_taps(taps: Sequence[int], layers: int) -> Iterator[tuple[str, list[int], bool]]:
    """Yields other plausible taps: their description, their layers, and whether confusing them is a common mistake."""
    candidates = [(f"every tap {by:+d}", [n + by for n in taps], True) for by in SHIFTS]
    candidates += [("taps in reverse order", list(taps[::-1]), True), ("taps in ascending order", sorted(taps), False)]
    for one, other in combinations(range(len(taps)), 2):
        order = list(taps)
        order[one], order[other] = order[other], order[one]
        candidates.append((f"taps {taps[one]} and {taps[other]} swapped", order, True))
    for index, tap in enumerate(taps):
        for by in SHIFTS[:4]:
            candidates.append(
                (f"tap {tap + by} instead of {tap}", [*taps[:index], tap + by, *taps[index + 1 :]], False)
            )
    for description, others, common in candidates:
        if min(others) >= 0 and max(others) < layers:
            yield f"{description}: {others}", others, common


def _other_ropes(rope: Mapping[str, Any], target_rope: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield f"the target's RoPE (base {target_rope.get('rope_theta'):g})", dict(target_rope)
    for base in BASES:
        yield f"RoPE base {base:g}, unscaled", {"rope_theta": base, "rope_type": "default"}
    if rope.get("rope_type") != "default":
        yield "RoPE unscaled", {"rope_theta": rope["rope_theta"], "rope_type": "default"}


def _other_attention(form: DrafterForm, longest: int) -> Iterator[tuple[str, tuple[Any, Any]]]:
    count = len(form.windows)
    if any(w is not None for w in form.windows):
        without = (None,) * count
        yield "no window, bidirectional attention within the block", (without, (False,) * count)
        yield "no window", (without, form.causal)
    else:
        for width in WINDOWS:
            if width < longest:
                yield f"a window of {width} in all layers", ((width,) * count, form.causal)
    for causal in (False, True):
        words = f"{'causal' if causal else 'bidirectional'} attention within the block"
        yield words, (form.windows, (causal,) * count)


def _other_heads(form: Any) -> Iterator[tuple[int, int, int]]:
    """Yields other head shapes that fit the same matrices: head size, number of heads, number of KV heads.

    If queries and keys have norms, these determine the head size, and nothing is yielded.
    """
    size, heads, kv_heads = settings_of(form)["heads"]
    queries, keys = heads * size, kv_heads * size
    for other_size in HEAD_SIZES:
        if not (form.qk_norm or other_size == size or queries % other_size or keys % other_size):
            yield other_size, queries // other_size, keys // other_size


def _displaced(form: Form) -> Iterator[Variant]:
    """Yields variants whose inputs are at other positions than in training. No config key can express these changes."""
    yield Variant("lag", "target features one position late", form, lag=1)
    if isinstance(form, DrafterForm):
        yield Variant("ahead", "positions of the block one too high", form, ahead=1)
        yield Variant("ahead", "positions of the block one too low", form, ahead=-1)
    else:
        yield Variant("ahead", "embeddings one position early", form, ahead=1)


# Edits of the weights, which undo conversions of all layers.


def _conversions(model: Drafter, form: Form) -> Iterator[Variant]:
    weights = weights_of(model)
    config = model.config
    heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}
    for order, change in (("pairs into halves", pairs_to_halves), ("halves into pairs", halves_to_pairs)):
        for parts in ("qk", "q", "k"):
            counts = {n: heads[p] for p in parts for n in weights if n.endswith(f"self_attn.{p}_proj.weight")}
            words = " and ".join(f"{p}_proj" for p in parts)
            description = f"rows of {words} within each head reordered from {order}"
            fix = f"{description}, which undoes a GGUF conversion"
            yield Variant("rotary", description, form, None, _reorder(counts, change), fix, common=True)
    norms = [n for n, w in weights.items() if w.dim() == 1 and n.endswith("norm.weight")]
    groups = {
        "all norms": norms,
        "input and post-attention norms": [n for n in norms if n.endswith("layernorm.weight")],
    }
    for group, names in groups.items():  # norms of some model types multiply by weight + 1
        medians = [float(weights[n].float().median()) for n in names]
        for by in (1.0, -1.0):  # only towards 1, since shifts away from 1 also help damaged drafters
            if sum(_distance_from_one(m + by) - _distance_from_one(m) for m in medians) < 0:
                # A trained norm has weights below 1. If 1 was subtracted, these are negative.
                negative = 2 * sum(float(weights[n].min()) < 0 for n in names) > len(names)
                description, edit = f"{by:+g} on the weights of {group}", _shift(names, by)
                yield Variant("norms", description, form, None, edit, description, common=by < 0 or negative)


def _shift(names: Sequence[str], by: float) -> WeightEdit:
    return lambda w: {name: w[name] + by for name in names}


def _distance_from_one(median: float) -> float:
    """Returns |log₂ median|: the distance of a norm's median weight from 1, its initial value, in powers of two."""
    return abs(log2(max(median, 1e-3)))


def _reorder(heads: Mapping[str, int], change: Any) -> WeightEdit:
    return lambda w: {name: change(w[name], count) for name, count in heads.items()}


def pairs_to_halves(weight: Tensor, heads: int) -> Tensor:
    """Reorders the rows of every head from adjacent pairs to two halves, the order that transformers' RoPE needs."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def halves_to_pairs(weight: Tensor, heads: int) -> Tensor:
    """Reorders rows in the opposite way to ``pairs_to_halves``. llama.cpp's converter does so for some model types."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
