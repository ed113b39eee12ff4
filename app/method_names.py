"""What methods are called where one chooses among them, and in which groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from app.lanes import COST_AWARE, method_of

GROUPS = {
    "Plain": {"autoregressive": "Plain decoding"},
    "Chains": {"draft_model": "Draft model", "dflash": "DFlash", "specdiff2_select": "SpecDiff-2"},
    "Trees": {"eagle3": "EAGLE-3", "ddtree": "DDTree"},
    "D²SD": {"d2sd": "D²SD", "d2sd_tree": "D²SD as a tree"},
    "Ablations": {
        "dflash_resample": "DFlash, resampled",
        "dflash_twice": "D²SD with one drafter",
        "random_prefix": "D²SD from random prefixes",
        "d2sd_three_level": "D²SD, re-drafted twice",
    },
}
NAMES = {method: name for group in GROUPS.values() for method, name in group.items()}


def named(lane: str) -> str:
    """A method or a race's lane by name, its id beside it."""
    method = method_of(lane)
    return f"{NAMES[method]}{',' if lane != method else ''}{COST_AWARE if lane != method else ''} ({lane})"


def said(header: Mapping[str, Any]) -> str:
    """The method of a run by name; its id where it has none."""
    method, config = str(header.get("method", "run")), header.get("config")
    aware = isinstance(config, Mapping) and config.get("cost_aware") is True
    return NAMES.get(method, method[:40]) + (f",{COST_AWARE}" if aware else "")


def grouped(lanes: Collection[str]) -> dict[str, dict[str, str]]:
    """What these methods or lanes are called, by id, in their groups; groups without one are left out."""
    found = {
        title: {lane: named(lane) for method in group for lane in lanes if method_of(lane) == method}
        for title, group in GROUPS.items()
    }
    return {title: group for title, group in found.items() if group}
