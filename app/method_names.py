"""Display names of methods, and their groups in lists."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from app.race.lanes import COST_AWARE, method_of
from d2sd import METHODS
from d2sd.methods.base import GROUPS

NAMES = {method.id: method.name for method in METHODS.values()}


def named(lane: str) -> str:
    """Returns the name of a method or lane, with its id."""
    method = method_of(lane)
    return f"{NAMES[method]}{',' if lane != method else ''}{COST_AWARE if lane != method else ''} ({lane})"


def said(header: Mapping[str, Any]) -> str:
    """Returns the name of a run's method, or its id."""
    method, config = str(header.get("method", "run")), header.get("config")
    aware = isinstance(config, Mapping) and config.get("cost_aware") is True
    return NAMES.get(method, method[:40]) + (f",{COST_AWARE}" if aware else "")


def grouped(lanes: Collection[str]) -> dict[str, dict[str, str]]:
    """Returns the names of these methods or lanes, by id, in their groups; empty groups are left out."""
    found = {
        group: {
            lane: named(lane) for m in METHODS.values() if m.group == group for lane in lanes if method_of(lane) == m.id
        }
        for group in GROUPS
    }
    return {group: names for group, names in found.items() if names}
