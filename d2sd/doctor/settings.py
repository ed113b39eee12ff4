"""The settings with which a drafter's weights are read, by name, and the keys of ``config.json`` that express them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from d2sd.nets.layouts import LAYERS, LAYOUTS, TAPS, DrafterForm, Form

Config = Mapping[str, Any]  # published config of a drafter, or keys of it by path
Setting = Literal["taps", "mask", "rope", "attention", "reads", "rows", "eps", "residual", "output", "heads"]

# Names for reports. Some settings are named after the part of the weights that depends on them.
WORDS: Mapping[Setting, str] = {
    "taps": "taps", "mask": "mask token", "rope": "RoPE", "attention": "window and attention mask", "reads": "fill or next",
    "rows": "rows per block", "eps": "rms_norm_eps", "residual": "norm_before_residual", "output": "norm_output",
    "heads": "head size",
}  # fmt: skip
FIELDS = {  # settings that are fields of a form
    "taps": "taps", "mask": "mask_token", "reads": "reads", "rows": "rows", "residual": "norm_before_residual", "output": "norm_output",
}  # fmt: skip
LAYER_KEYS = {"rope": "rope_parameters", "eps": "rms_norm_eps"}
HEADS = ("head_dim", "num_attention_heads", "num_key_value_heads")


def settings_of(form: Form) -> dict[Setting, Any]:
    """Returns the value of each setting of a form. "attention" has the pair (windows, causal), "heads" the values of the keys
    ``HEADS``.
    """
    settings: dict[Any, Any] = {name: getattr(form, field) for name, field in FIELDS.items() if hasattr(form, field)}
    if isinstance(form, DrafterForm):
        settings["attention"] = form.windows, form.causal
    else:
        settings["heads"] = tuple(form.shape[key] for key in HEADS)
    return settings | {name: form.shape[key] for name, key in LAYER_KEYS.items()}


def with_setting(form: Any, name: Setting, value: Any) -> Any:
    if name in FIELDS:
        return replace(form, **{FIELDS[name]: value})
    if name == "attention":
        return replace(form, windows=value[0], causal=value[1])
    keys = dict(zip(HEADS, value, strict=True)) if name == "heads" else {LAYER_KEYS[name]: value}
    return replace(form, shape={**form.shape, **keys})


def config_values(form: Form, name: Setting, raw: Config) -> dict[str, Any] | None:
    """Returns the config keys, by path, that express the form's value of a setting; the value None removes a key. Returns None if
    no keys express it.

    raw: the config to change.
    """
    value: Any = settings_of(form)[name]
    layer_prefix = "transformer_layer_config." if "transformer_layer_config" in raw else ""
    nested_prefix = "dflash_config." if "dflash_config" in raw else ""
    plain = {"eps": f"{layer_prefix}rms_norm_eps", "rows": "block_size", "mask": f"{nested_prefix}mask_token_id", "residual": "norm_before_residual", "output": "norm_output"}  # fmt: skip
    if name in plain:
        return {plain[name]: value}
    match name:
        case "rope":
            return {
                f"{layer_prefix}rope_parameters": dict(value),
                f"{layer_prefix}rope_theta": None,
                f"{layer_prefix}rope_scaling": None,
            }
        case "heads":
            return {f"{layer_prefix}{key}": part for key, part in zip(HEADS, value, strict=True)}
        case "taps":
            key = LAYOUTS[form.layout].taps if isinstance(form, DrafterForm) else LAYERS
            if "eagle_config" in raw:
                return {f"eagle_config.{LAYERS}": list(value), LAYERS: None}
            return {key: [n + TAPS[key] for n in value]}
        case "attention":
            windows, causal = value
            values: dict[str, Any] = (
                {"sliding_window_non_causal": not any(causal)} if layer_prefix else {"is_causal": any(causal)}
            )
            if any(windows) or "sliding_attention" in str(raw):
                values[f"{layer_prefix}layer_types"] = [f"{'sliding' if w else 'full'}_attention" for w in windows]
                values[f"{layer_prefix}sliding_window"] = max((w for w in windows if w), default=None)
                values |= {f"{nested_prefix}use_swa": None} if nested_prefix else {}
            return values
        case _:
            return {"sample_from_anchor": value == "next"} if layer_prefix else _anchor_values(value, raw)


def _anchor_values(reads: str, raw: Config) -> dict[str, Any] | None:
    """Returns the config keys, by path, that make a drafter follow the convention ``reads`` ("fill" or "next"); None if no keys do.

    Except in speculators' layout, no single key expresses the convention: it follows from the layout, so the layout is changed.

    raw: the config to change.
    """
    keys = ("mask_token_id", "target_layer_ids")
    if reads == "next" and "dflash_config" in raw:
        flat = {name: raw["dflash_config"].get(name) for name in keys}
        return {**flat, "dflash_config": None, "architectures": ["Qwen3DSparkModel"]}
    if reads == "fill" and "dflash_config" not in raw:
        nested = {f"dflash_config.{name}": raw.get(name) for name in keys}
        return {**dict.fromkeys(keys), **nested, "architectures": ["DFlashDraftModel"]}
    return None


def set_keys(config: dict[str, Any], values: Config) -> None:
    """Sets keys of a config in place.

    values: values by path. The path "a.b" is the key b of the object a. The value None removes the key.
    """
    for path, value in values.items():
        *outer, last = path.split(".")
        inner = config
        for part in outer:
            inner = inner.setdefault(part, {})
        if value is None:
            inner.pop(last, None)
        else:
            inner[last] = value


def config_line(values: Config) -> str:
    line = ", ".join(f"{path}: {json.dumps(value)}" for path, value in values.items() if value is not None)
    removed = [path for path, value in values.items() if value is None]
    return line + (f" (and no {', no '.join(removed)})" if removed else "")
