"""What a probe changes of a drafter: one thing each, with the line of its config that would say so."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import nn

from d2sd.methods.base import MAX_BLOCK
from d2sd.models.beginnings import plain_rope
from d2sd.models.drafter import DFlashDraftModel, default_target_layers
from d2sd.models.form import DrafterForm
from d2sd.models.target import Target

Kind = Literal["taps", "mask", "rope", "window", "causal", "reads", "rows", "layer", "dtype"]
SHIFTS = (-1, 1, -2, 2, -3, 3)
BASES = (1e4, 1e5, 5e5, 1e6, 5e6, 1e7)  # of published models
WINDOWS = (32, 128, 512, 1024, 2048, 4096)
ROWS = (4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
WORTH, WORTH_LONGER = 0.02, 0.04  # some drafters draft a little further than they were trained for
MOST_LAYERS = 8
RESERVED = 300  # special tokens that are looked at as mask tokens


@dataclass(frozen=True, slots=True)
class Variant:
    """A drafter with one thing changed.

    said: what, in a few words.
    mend: the config line that says so, None where there is none.
    form: how its weights are read.
    without: a layer that is left out.
    widened: whether its weights are read in float32.
    worth: what it must gain to be named, as a share.
    """

    kind: Kind
    said: str
    mend: str | None
    form: DrafterForm
    without: int | None = None
    widened: bool = False
    worth: float = WORTH

    def of(self, model: DFlashDraftModel) -> DFlashDraftModel:
        """The drafter as this variant has it; weights are shared, except where they are widened."""
        other = model.reformed(self.form)
        if self.without is not None:
            kept = [layer for n, layer in enumerate(model.layers) if n != self.without]
            other.__dict__["_modules"]["layers"] = nn.ModuleList(kept)
        return copy.deepcopy(other).float() if self.widened else other


def variants(model: DFlashDraftModel, target: Target, longest: int, whole: bool) -> list[Variant]:
    """Everything that is tried on a drafter but mask tokens, each form once.

    longest: tokens of the longest text.
    whole: whether some drafts are accepted to their end, so that longer ones may pay.
    """
    form, layers = model.form, target.config.num_hidden_layers
    found = [
        *_taps(form, layers),
        *_rope(form, target.config),
        *_attention(form, longest),
        *_reads(form),
        *_rows(form, whole),
        *_layers(form),
    ]
    if model.dtype.itemsize < 4:
        found.append(
            Variant("dtype", "the drafter's weights in float32", "run with --dtype float32", form, widened=True)
        )
    seen: list[tuple[DrafterForm, int | None, bool]] = [(form, None, False)]
    once = []
    for variant in found:
        key = variant.form, variant.without, variant.widened
        if key not in seen:
            seen.append(key)
            once.append(variant)
    return once


def tapped(found: Sequence[Variant], form: DrafterForm) -> set[int]:
    """All target layers that some of them read."""
    return {n for f in (form, *(v.form for v in found)) for n in f.taps}


def mask_tokens(form: DrafterForm, target: Target) -> list[int]:
    """Tokens that may stand for what is to be drafted: special ones, the first and last that no tokenizer uses, neighbours."""
    tokenizer, size = target.tokenizer, target.config.vocab_size
    special = sorted(n for n, token in tokenizer.added_tokens_decoder.items() if token.special)[:RESERVED]
    others = [len(tokenizer), len(tokenizer) - 1, size - 1, form.mask_token - 1, form.mask_token + 1]
    named = [tokenizer.mask_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id]
    wanted = dict.fromkeys(n for n in (*named, *special, *others) if n is not None and 0 <= n < size)
    return [n for n in wanted if n != form.mask_token]


def with_mask(form: DrafterForm, token: int, text: str) -> Variant:
    """Another mask token, whose text is given."""
    line = _line(form, "mask_token_id", token)
    return Variant("mask", f"mask token {token} ({text})", line, replace(form, mask_token=token))


def _taps(form: DrafterForm, layers: int) -> Iterator[Variant]:
    def tried(said: str, taps: Sequence[int]) -> Iterator[Variant]:
        if min(taps) >= 0 and max(taps) < layers:
            yield Variant("taps", f"{said}: {list(taps)}", taps_line(form, taps), replace(form, taps=tuple(taps)))

    for by in SHIFTS:
        yield from tried(f"every tap {by:+d}", [n + by for n in form.taps])
    yield from tried("taps in ascending order", sorted(form.taps))
    yield from tried("taps in reverse order", form.taps[::-1])
    even = default_target_layers(layers, len(form.taps))
    if len(even) == len(form.taps):
        yield from tried("taps spread evenly up to L − 3", even)


def taps_line(form: DrafterForm, taps: Sequence[int]) -> str:
    """The config line that names these layers; speculators count a layer's input."""
    if form.layout == "speculators":
        return _line(form, "aux_hidden_state_layer_ids", [n + 1 for n in taps])
    return _line(form, "target_layer_ids", list(taps))


def _rope(form: DrafterForm, target: Any) -> Iterator[Variant]:
    def tried(said: str, rope: dict[str, Any]) -> Iterator[Variant]:
        line = f"{_place(form)}rope_parameters: {json.dumps(rope)} (and no other rope_theta or rope_scaling)"
        yield Variant("rope", said, line, replace(form, shape={**form.shape, "rope_parameters": rope}))

    theirs = plain_rope(target)
    yield from tried(f"the target's RoPE (base {theirs.get('rope_theta'):g})", theirs)
    for base in BASES:
        yield from tried(f"RoPE base {base:g}, unscaled", {"rope_theta": base, "rope_type": "default"})
    own = form.shape["rope_parameters"]
    if own.get("rope_type") != "default":
        yield from tried("RoPE unscaled", {"rope_theta": own["rope_theta"], "rope_type": "default"})


def _attention(form: DrafterForm, longest: int) -> Iterator[Variant]:
    count = len(form.windows)
    off, both = (None,) * count, (False,) * count
    full = '"full_attention"'
    if any(w is not None for w in form.windows):
        line = f"{_place(form)}layer_types: [{', '.join([full] * count)}], no use_swa"
        yield Variant("window", "no window, bidirectional in the block", line, replace(form, windows=off, causal=both))
        yield Variant("window", "no window, the rest as it is", line, replace(form, windows=off))
    else:
        for width in WINDOWS:
            if width < longest:
                line = f'layer_types: all "sliding_attention", sliding_window: {width}, is_causal: {str(any(form.causal)).lower()}'
                yield Variant(
                    "window", f"a window of {width} in all layers", line, replace(form, windows=(width,) * count)
                )
    for causal in (False, True):
        said = "rows see no later row of their block" if causal else "rows see the whole block"
        line = f"is_causal: {str(causal).lower()}"
        if form.layout == "speculators":
            line = f"sliding_window_non_causal: {str(not causal).lower()}"
        yield Variant("causal", said, line, replace(form, causal=(causal,) * count))


def _reads(form: DrafterForm) -> Iterator[Variant]:
    if form.reads == "next":
        said, lines = "a row is about its own position (fill)", {
            "speculators": "sample_from_anchor: false",
            "flat": "the nested layout of DFlash (dflash_config), since a flat one always reads next",
            "nested": 'architectures: ["DFlashDraftModel"], since DSpark always reads next',
        }  # fmt: skip
        yield Variant("reads", said, lines[form.layout], replace(form, reads="fill"))
    else:
        said, lines = "a row is about the position after it (next)", {
            "speculators": "sample_from_anchor: true",
            "nested": "the flat layout of DeepSpec (all keys at the top), whose rows read next",
        }  # fmt: skip
        yield Variant("reads", said, lines.get(form.layout), replace(form, reads="next"))


def _rows(form: DrafterForm, whole: bool) -> Iterator[Variant]:
    for rows in ROWS:
        fits = rows < form.rows or (whole and form.rows < rows <= min(2 * form.rows, MAX_BLOCK - 1))
        if fits:
            said = f"{rows} rows a block, {rows - 1 + form.shift} guesses a step"
            worth = WORTH_LONGER if rows > form.rows else WORTH
            yield Variant("rows", said, f"block_size: {rows}", replace(form, rows=rows), worth=worth)


def _layers(form: DrafterForm) -> Iterator[Variant]:
    count = len(form.windows)
    if not 2 <= count <= MOST_LAYERS:
        return
    for skip in range(count):
        kept = [n for n in range(count) if n != skip]
        left = replace(form, windows=tuple(form.windows[n] for n in kept), causal=tuple(form.causal[n] for n in kept))
        yield Variant("layer", f"layer {skip} left out", None, left, without=skip)


def _line(form: DrafterForm, key: str, value: object) -> str:
    inner = "dflash_config." if form.layout == "nested" else ""
    return f"{inner}{key}: {json.dumps(value)}"


def _place(form: DrafterForm) -> str:
    return "transformer_layer_config." if form.layout == "speculators" else ""
