"""The settings that a user of the page can change: those of ``d2sd.config.SETTINGS`` with a label."""

from __future__ import annotations

import math
import re
from typing import Any

from d2sd import METHODS, DecodeConfig, InputError
from d2sd.config import SETTINGS as ALL
from d2sd.config import Setting
from d2sd.methods.base import TREE_SETTINGS

# how long the text may be comes last
SETTINGS = tuple(sorted((s for s in ALL.values() if s.label), key=lambda s: s.name == "max_new_tokens"))
_NAMES = re.compile(rf"\b({'|'.join(s.name for s in SETTINGS if '_' in s.name)})\b")


def element(setting: Setting) -> str:
    """Returns the id of a setting's control."""
    return setting.control or setting.name.replace("_", "-")


def read(setting: Setting, value: Any) -> Any:
    """Returns a control's value as ``DecodeConfig`` takes it; raises ``InputError``."""
    if setting.kind in ("flag", "choice"):
        setting.check(value)
        return value
    if setting.optional and not value:  # a number field that was never touched says 0
        return None
    if setting.kind == "whole":
        return whole(value, setting.name)
    return float(value) if _is_number(value) else math.nan


def whole(value: Any, name: str) -> int:
    """Returns the integer of a control; raises ``InputError``."""
    if not _is_number(value) or not math.isfinite(value) or value != int(value):
        raise InputError(f"{name} must be a whole number")
    return int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def readable(error: InputError) -> str:
    """Returns an error message with settings named as on the page."""
    labels = {s.name: s.label for s in SETTINGS}
    return _NAMES.sub(lambda match: labels[match[0]], str(error))


def used_by(method: str) -> frozenset[str]:
    """Returns the names of the settings that affect this method: those of every run, and those that shape its trees."""
    return frozenset(s.name for s in SETTINGS) - TREE_SETTINGS | METHODS[method].settings


def config(method: str, values: dict[str, Any]) -> DecodeConfig:
    """Returns the configuration of a run from the controls' values by name; raises ``InputError``."""
    if method not in METHODS:
        raise InputError(f"unknown method {str(method)[:40]!r}; choose one of: {', '.join(METHODS)}")
    return DecodeConfig(method=method, **{s.name: read(s, values[s.name]) for s in SETTINGS if s.name in values})
