"""Variants of a block drafter: one changed setting each, with the config line that would express it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from d2sd.doctor.changes import WORTH, Kind, Variant, keys, line
from d2sd.doctor.undoing import undoings
from d2sd.methods.base import MAX_BLOCK
from d2sd.models.beginnings import plain_rope
from d2sd.models.drafter import DFlashDraftModel, default_target_layers
from d2sd.models.form import DrafterForm
from d2sd.models.target import Target

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
