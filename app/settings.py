"""The settings that a user of the page can change (``d2sd.config.SETTINGS`` with a label), and their controls."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import gradio as gr
import torch

from app.machine import ON_ZERO_GPU
from app.models import block_size, templated
from app.presets import first_model
from d2sd import METHODS, DecodeConfig, InputError
from d2sd.calibration.text import capitalized
from d2sd.config import SETTINGS as ALL
from d2sd.config import Setting
from d2sd.errors import require
from d2sd.methods.base import TREE_SETTINGS

# Settings that a race and a measurement use; Explore uses those of the method.
RACED = ("block_size", "num_branches", "node_budget", "temperature", "seed", "max_new_tokens", "chat")
MEASURED = ("block_size", "num_branches", "temperature", "max_new_tokens", "chat")
# max_new_tokens goes last
SETTINGS = tuple(sorted((s for s in ALL.values() if s.label), key=lambda s: s.name == "max_new_tokens"))
_NAMES = re.compile(rf"\b({'|'.join(s.name for s in SETTINGS if '_' in s.name)})\b")
# app/runs/main.js stores these values when the page is left
KEEP = "(...values) => void ((window.d2sdForms ??= {})[%s] = values)"
# returning undefined leaves the fields unchanged
RECALL = """() => {
  try {
    return JSON.parse(sessionStorage.getItem(%s)) ?? undefined;
  } catch { /* storage is disabled */ }
}"""


def meanings() -> dict[str, str]:
    """Returns what each setting does, by the label of its control."""
    return {capitalized(s.label): ". ".join(filter(None, (s.meaning, s.note))) for s in SETTINGS}


def element(setting: Setting) -> str:
    return setting.control or setting.name.replace("_", "-")


def read_setting(setting: Setting, value: Any) -> Any:
    """Returns a control's value for ``DecodeConfig``. Raises ``InputError`` if its type is wrong."""
    if setting.kind in ("flag", "choice"):
        setting.check(value)
        return value
    if setting.optional and not value:  # an untouched number field sends 0
        return None
    if setting.kind == "whole":
        return whole(value, setting.name)
    return float(value) if _is_number(value) else math.nan


def whole(value: Any, name: str) -> int:
    require(_is_number(value) and math.isfinite(value) and value == int(value), f"{name} must be a whole number")
    return int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def readable(error: InputError) -> str:
    """Returns an error message with settings named as on the page."""
    labels = {s.name: s.label for s in SETTINGS}
    return _NAMES.sub(lambda match: labels[match[0]], str(error))


def used_by(method: str) -> frozenset[str]:
    """Returns the names of the settings that affect this method: the settings of all methods, and the tree settings that it uses."""
    return frozenset(s.name for s in SETTINGS) - TREE_SETTINGS | METHODS[method].settings


def config(method: str, values: dict[str, Any]) -> DecodeConfig:
    """Returns the configuration of a run. ``values``: the controls' values by name. Raises ``InputError`` if one is invalid."""
    require(method in METHODS, f"unknown method {str(method)[:40]!r}; choose one of: {', '.join(METHODS)}")
    return DecodeConfig(
        method=method, **{s.name: read_setting(s, values[s.name]) for s in SETTINGS if s.name in values}
    )


def default_budget() -> int | None:
    """Returns the B that the page starts with: γ on a CPU, and no limit on a GPU."""
    return None if torch.cuda.is_available() or ON_ZERO_GPU else block_size(first_model(), "")


def setting_tabs(name: str, used: bool) -> list[str]:
    """Returns the classes of a setting's control, which name the tabs that show it; see ``page.css``.

    used: whether the method in Explore uses the setting.
    """
    shown = {"in-explore": used, "in-race": name in RACED, "in-calibrate": name in MEASURED}
    return ["in-tabs", *(tab for tab, shows in shown.items() if shows)]


def setting_box(setting: Setting, used: bool) -> gr.Number | gr.Checkbox | gr.Dropdown:
    """Returns the control of a setting: a number field, a checkbox or a list. used: as in ``setting_tabs``."""
    shape: dict[str, Any] = {
        "elem_id": element(setting),
        "min_width": 60,
        "elem_classes": setting_tabs(setting.name, used),
    }
    if setting.kind == "flag":
        chat = setting.name == "chat" and templated(first_model())
        return gr.Checkbox(bool(setting.default) or chat, label=setting.label, **shape)
    value = default_budget() if setting.name == "node_budget" else setting.default
    shape |= {"value": value, "label": capitalized(setting.label)}
    if setting.kind == "choice":
        return gr.Dropdown(list(setting.choices), filterable=False, **shape)
    return gr.Number(step=setting.step, placeholder="auto" if setting.optional else None, **shape)


def remember(name: str, boxes: Sequence[Any]) -> str:
    """Keep the values of controls in the browser's session storage, so that they survive a reload.

    name: key of the values.

    Returns the script of an event that restores the values. The outputs of the event must be the same controls.
    """
    key = json.dumps(f"d2sd-{name}")
    changed = [box.change for box in boxes]
    gr.on(changed, None, boxes, None, js=KEEP % key, show_progress="hidden", queue=False)
    return RECALL % key
