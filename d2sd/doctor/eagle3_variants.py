"""Other ways to read an EAGLE-3 drafter's weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from d2sd.doctor.changes import Kind, Variant, keys, line
from d2sd.doctor.undoing import undoings
from d2sd.doctor.variants import each_once, other_ropes, other_taps
from d2sd.models.eagle3 import Eagle3Config, Eagle3DraftModel
from d2sd.models.eagle3_folder import LAYERS
from d2sd.models.target import Target


def eagle3_variants(model: Eagle3DraftModel, target: Target) -> list[Variant]:
    """Returns every variant of an EAGLE-3 drafter, each once."""
    form = model.config
    found = [*_taps(form, target), *_rope(form, target), *_flags(form), *_heads(form, target), *undoings(model, target)]
    return each_once(found, Variant("taps", "", None, form))


def _read(kind: Kind, said: str, changed: dict[str, Any], form: Eagle3Config) -> Variant:
    return Variant(kind, said, line(changed), form, rewrite=keys(changed))


def _shaped(kind: Kind, said: str, changed: dict[str, Any], form: Eagle3Config) -> Variant:
    """Of keys of its layer, which speculators keep in an object of their own."""

    def rewrite(config: dict[str, Any]) -> dict[str, Any]:
        at = "transformer_layer_config." if "transformer_layer_config" in config else ""
        return keys({f"{at}{name}": value for name, value in changed.items()})(config)

    return Variant(
        kind, said, line(changed), _layer(form, **{k: v for k, v in changed.items() if v is not None}), rewrite=rewrite
    )


def _taps(form: Eagle3Config, target: Target) -> Iterator[Variant]:
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


def _rope(form: Eagle3Config, target: Target) -> Iterator[Variant]:
    for said, rope in other_ropes(dict(form.layer.rope_parameters), target.config):
        yield _shaped("rope", said, {"rope_parameters": rope, "rope_theta": None, "rope_scaling": None}, form)


def _flags(form: Eagle3Config) -> Iterator[Variant]:
    before, output = not form.norm_before_residual, not form.norm_output
    said = "the residual is the normed feature" if before else "the residual is the feature as it is"
    yield _read("residual", said, {"norm_before_residual": before}, replace(form, norm_before_residual=before))
    said = (
        "deeper levels read the final norm's output" if output else "deeper levels read what is before the final norm"
    )
    yield _read("output", said, {"norm_output": output}, replace(form, norm_output=output))


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
