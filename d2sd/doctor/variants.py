"""All changes that are tried on a drafter: readings, and the edits of ``d2sd.doctor.weight_edits``.

A reading uses the same weights with another setting. The config of the drafter can express most readings.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

from d2sd.doctor.changes import MIN_GAIN, Kind, Variant, config_line, set_keys
from d2sd.doctor.redraft import Drafter
from d2sd.doctor.weight_edits import weight_variants
from d2sd.folders.drafters import LAYERS
from d2sd.methods.base import MAX_BLOCK
from d2sd.nets.drafter import DFlashDraftModel, default_target_layers, plain_rope
from d2sd.nets.eagle3 import Eagle3Config
from d2sd.nets.layouts import DrafterForm
from d2sd.nets.target import Target

SHIFTS = (-1, 1, -2, 2, -3, 3)
BASES = (1e4, 1e5, 5e5, 1e6, 5e6, 1e7)  # RoPE bases of published models
WINDOWS = (32, 128, 512, 1024, 2048, 4096)
ROWS = (4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
MIN_GAIN_LONGER = 0.04  # for longer blocks, since some drafters draft a little further than they were trained for
MOST_SPECIAL = 300  # special tokens that are tried as mask tokens


def variants(model: Drafter, target: Target, longest: int, whole: bool) -> list[Variant]:
    """Returns all distinct variants of a block or EAGLE-3 drafter. Variants with other mask tokens are not included.

    longest: number of tokens of the longest text.
    whole: whether enough drafts are accepted completely, so that longer drafts may help.
    """
    form = model.form if isinstance(model, DFlashDraftModel) else model.config
    found = [*readings(model, target, longest, whole), *weight_variants(model, target)]
    seen, distinct = [Variant("taps", "", None, form).key], []
    for variant in found:
        if variant.key not in seen:
            seen.append(variant.key)
            distinct.append(variant)
    return distinct


def readings(model: Drafter, target: Target, longest: int, whole: bool) -> list[Variant]:
    """Returns the variants that use the same weights with another setting. Arguments as in ``variants``."""
    if isinstance(model, DFlashDraftModel):
        return list(_block_readings(model.form, target, longest, whole))
    return list(_eagle3_readings(model.config, target))


def mask_tokens(form: DrafterForm, target: Target) -> list[int]:
    """Returns candidates for the mask token: special tokens, the last ids, the first unused id, and the neighbours of the current id."""
    tokenizer, size = target.tokenizer, target.config.vocab_size
    special = sorted(n for n, token in tokenizer.added_tokens_decoder.items() if token.special)[:MOST_SPECIAL]
    others = [len(tokenizer), len(tokenizer) - 1, size - 1, form.mask_token - 1, form.mask_token + 1]
    named = [tokenizer.mask_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id]
    candidates = dict.fromkeys(n for n in (*named, *special, *others) if n is not None and 0 <= n < size)
    return [n for n in candidates if n != form.mask_token]


def with_mask(form: DrafterForm, token: int, text: str) -> Variant:
    values = {_dflash_key(form, "mask_token_id"): token}
    return _reading("mask", f"mask token {token} ({text})", values, replace(form, mask_token=token))


def taps_line(form: DrafterForm, taps: Sequence[int]) -> str:
    return config_line(_taps_keys(form, taps))


# Readings: each changes one setting and the config keys that express it.


def _reading(
    kind: Kind, description: str, values: dict[str, Any], form: DrafterForm | Eagle3Config, min_gain: float = MIN_GAIN,
    as_target: bool = False,
) -> Variant:  # fmt: skip
    edit = set_keys(values)
    return Variant(
        kind, description, config_line(values), form, edit_config=edit, min_gain=min_gain, as_target=as_target
    )


def _other_taps(taps: Sequence[int], layers: int) -> Iterator[tuple[str, list[int]]]:
    """Yields other plausible taps, with descriptions: all taps shifted, reordered or evenly spaced, or one tap shifted."""
    found = [(f"every tap {by:+d}", [n + by for n in taps]) for by in SHIFTS]
    found += [("taps in ascending order", sorted(taps)), ("taps in reverse order", list(taps[::-1]))]
    even = default_target_layers(layers, len(taps))
    if len(even) == len(taps):
        found.append(("evenly spaced taps up to L − 3", even))
    for one, other in combinations(range(len(taps)), 2):
        order = list(taps)
        order[one], order[other] = order[other], order[one]
        found.append((f"taps {taps[one]} and {taps[other]} swapped", order))
    for at, tap in enumerate(taps):
        for by in SHIFTS[:4]:
            found.append((f"tap {tap + by} instead of {tap}", [*taps[:at], tap + by, *taps[at + 1 :]]))
    for description, others in found:
        if min(others) >= 0 and max(others) < layers:
            yield f"{description}: {others}", others


def _other_ropes(own: Mapping[str, Any], target: Target) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields other rotary embeddings: the target's, unscaled ones with usual bases, and the drafter's without scaling."""
    theirs = plain_rope(target.config)
    yield f"the target's RoPE (base {theirs.get('rope_theta'):g})", theirs
    for base in BASES:
        yield f"RoPE base {base:g}, unscaled", {"rope_theta": base, "rope_type": "default"}
    if own.get("rope_type") != "default":
        yield "RoPE unscaled", {"rope_theta": own["rope_theta"], "rope_type": "default"}


def _block_readings(form: DrafterForm, target: Target, longest: int, whole: bool) -> Iterator[Variant]:
    for description, taps in _other_taps(form.taps, target.config.num_hidden_layers):
        yield _reading("taps", description, _taps_keys(form, taps), replace(form, taps=tuple(taps)))
    at = _layer_prefix(form)
    for description, rope in _other_ropes(form.shape["rope_parameters"], target):
        values = {f"{at}rope_parameters": rope, f"{at}rope_theta": None, f"{at}rope_scaling": None}
        other, theirs = replace(form, shape={**form.shape, "rope_parameters": rope}), rope == plain_rope(target.config)
        yield _reading("rope", description, values, other, as_target=theirs)
    eps = getattr(target.config, "rms_norm_eps", None)
    if eps not in (None, form.shape["rms_norm_eps"]):
        with_eps = replace(form, shape={**form.shape, "rms_norm_eps": eps})
        yield _reading("eps", _eps_words(eps), {f"{at}rms_norm_eps": eps}, with_eps, as_target=True)
    yield from _windows(form, longest)
    for causal in (False, True):
        description = f"{'causal' if causal else 'bidirectional'} attention within the block"
        causal_form = replace(form, causal=(causal,) * len(form.causal))
        yield _reading("causal", description, _causal_keys(form, causal), causal_form)
    yield _other_anchor(form)
    for rows in ROWS:
        if rows < form.rows or (whole and form.rows < rows <= min(2 * form.rows, MAX_BLOCK - 1)):
            description = f"{rows} rows per block, {rows - 1 + form.shift} drafted tokens per step"
            min_gain = MIN_GAIN_LONGER if rows > form.rows else MIN_GAIN
            yield _reading("rows", description, {"block_size": rows}, replace(form, rows=rows), min_gain)


def _eps_words(eps: float) -> str:
    return f"the target's rms_norm_eps ({eps:g})"


def _windows(form: DrafterForm, longest: int) -> Iterator[Variant]:
    count, at = len(form.windows), _layer_prefix(form)
    if any(w is not None for w in form.windows):
        values: dict[str, Any] = {f"{at}layer_types": ["full_attention"] * count, f"{at}sliding_window": None}
        if form.layout == "nested":
            values["dflash_config.use_swa"] = None
        whole = replace(form, windows=(None,) * count)
        bidirectional = values | _causal_keys(form, False)
        description = "no window, bidirectional attention within the block"
        yield _reading("window", description, bidirectional, replace(whole, causal=(False,) * count))
        yield _reading("window", "no window", values | _causal_keys(form, any(form.causal)), whole)
        return
    for width in WINDOWS:
        if width < longest:
            values = {f"{at}layer_types": ["sliding_attention"] * count, f"{at}sliding_window": width}
            values |= _causal_keys(form, any(form.causal))
            narrowed = replace(form, windows=(width,) * count)
            yield _reading("window", f"a window of {width} in all layers", values, narrowed)


def _other_anchor(form: DrafterForm) -> Variant:
    if form.reads == "next":
        description, other = "the fill convention (a row predicts its own position)", replace(form, reads="fill")
        expressed = {
            "speculators": ("sample_from_anchor: false", set_keys({"sample_from_anchor": False})),
            "flat": (
                "the nested layout of DFlash (dflash_config), since rows of the flat layout always predict next",
                _nested,
            ),
            "nested": ('architectures: ["DFlashDraftModel"], since rows of DSpark always predict next', None),
        }
    else:
        description, other = "the next convention (a row predicts the next position)", replace(form, reads="next")
        expressed = {
            "speculators": ("sample_from_anchor: true", set_keys({"sample_from_anchor": True})),
            "nested": ("the flat layout of DeepSpec (all keys at the top level), whose rows predict next", _flat),
        }
    fix, edit = expressed.get(form.layout, (None, None))
    return Variant("reads", description, fix, other, edit_config=edit)


DFLASH_KEYS = ("mask_token_id", "target_layer_ids")  # keys that DFlash nests in an object


def _nested(config: dict[str, Any]) -> dict[str, Any]:
    rest = {k: v for k, v in config.items() if k not in DFLASH_KEYS}
    dflash = {name: config[name] for name in DFLASH_KEYS}
    return {**rest, "architectures": ["DFlashDraftModel"], "dflash_config": dflash}


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    rest = {k: v for k, v in config.items() if k != "dflash_config"}
    return {**rest, **config["dflash_config"], "architectures": ["Qwen3DSparkModel"]}


def _taps_keys(form: DrafterForm, taps: Sequence[int]) -> dict[str, Any]:
    """In the speculators layout, layers are numbered by their inputs, hence + 1."""
    if form.layout == "speculators":
        return {"aux_hidden_state_layer_ids": [n + 1 for n in taps]}
    return {_dflash_key(form, "target_layer_ids"): list(taps)}


def _causal_keys(form: DrafterForm, causal: bool) -> dict[str, Any]:
    return {"sliding_window_non_causal": not causal} if form.layout == "speculators" else {"is_causal": causal}


def _dflash_key(form: DrafterForm, name: str) -> str:
    return f"dflash_config.{name}" if form.layout == "nested" else name


def _layer_prefix(form: DrafterForm) -> str:
    return "transformer_layer_config." if form.layout == "speculators" else ""


def _eagle3_readings(form: Eagle3Config, target: Target) -> Iterator[Variant]:
    for description, taps in _other_taps(form.target_layer_ids, target.config.num_hidden_layers):
        fix = f"{LAYERS}: {taps} in eagle_config; if the config has no eagle_config, {[n + 1 for n in taps]} at the top level"
        other = replace(form, target_layer_ids=tuple(taps))
        yield Variant("taps", description, fix, other, edit_config=partial(_set_eagle3_taps, taps))
    for description, rope in _other_ropes(form.layer.rope_parameters, target):
        values = {"rope_parameters": rope, "rope_theta": None, "rope_scaling": None}
        yield _eagle3_layer("rope", description, values, form, rope == plain_rope(target.config))
    eps = getattr(target.config, "rms_norm_eps", None)
    if eps not in (None, form.layer.rms_norm_eps):
        yield _eagle3_layer("eps", _eps_words(eps), {"rms_norm_eps": eps}, form, as_target=True)
    before, output = not form.norm_before_residual, not form.norm_output
    description = f"the feature {'after' if before else 'before'} its norm as the residual"
    yield _reading(
        "residual", description, {"norm_before_residual": before}, replace(form, norm_before_residual=before)
    )
    source = f"the {'output' if output else 'input'} of the final norm"
    yield _reading(
        "output", f"{source} as input of deeper levels", {"norm_output": output}, replace(form, norm_output=output)
    )
    yield from _head_sizes(form, target)


def _set_eagle3_taps(taps: list[int], config: dict[str, Any]) -> dict[str, Any]:
    """Layers are numbered by their outputs in ``eagle_config``, but by their inputs at the top level."""
    if "eagle_config" in config:
        return set_keys({f"eagle_config.{LAYERS}": taps, LAYERS: None})(config)
    return set_keys({LAYERS: [n + 1 for n in taps]})(config)


def _eagle3_layer(
    kind: Kind, description: str, values: dict[str, Any], form: Eagle3Config, as_target: bool = False
) -> Variant:
    """Returns a variant with other values in the layer's config, an object nested in the config in the speculators layout."""
    layer = copy.deepcopy(form.layer)
    for name, value in values.items():
        if value is not None:
            setattr(layer, name, value)

    def edit(config: dict[str, Any]) -> dict[str, Any]:
        at = "transformer_layer_config." if "transformer_layer_config" in config else ""
        return set_keys({f"{at}{name}": value for name, value in values.items()})(config)

    other = replace(form, layer=layer)
    return Variant(kind, description, config_line(values), other, edit_config=edit, as_target=as_target)


def _head_sizes(form: Eagle3Config, target: Target) -> Iterator[Variant]:
    """Yields other head sizes that fit the same matrices. Norms of queries and keys, if present, fix the head size."""
    if form.qk_norm:
        return
    own, c, t = form.layer.head_dim, form.layer, target.config
    theirs = int(getattr(t, "head_dim", None) or t.hidden_size // t.num_attention_heads)
    queries, keys = c.num_attention_heads * own, c.num_key_value_heads * own
    for size in dict.fromkeys((theirs, 2 * own, own // 2, 4 * own, 64, 128)):
        if size < 2 or size % 2 or size == own or queries % size or keys % size:
            continue
        sizes = {"head_dim": size, "num_attention_heads": queries // size, "num_key_value_heads": keys // size}
        yield _eagle3_layer("head_dim", f"{queries // size} heads of size {size}", sizes, form)
