"""Methods as the page names them; a race also runs some of them cost-aware (*quickest here*), in lanes of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from d2sd import METHODS, Trace
from d2sd.methods.base import GROUPS

PLAIN = "autoregressive"
COST_AWARE = " cost-aware"  # in the name of a lane, after its method
AWARE = tuple(f"{method}{COST_AWARE}" for method in ("dflash", "ddtree", "d2sd", "d2sd_tree"))
LANES = (*METHODS, *AWARE)
DEFAULT_LANES = ("autoregressive", "dflash", "eagle3", "d2sd", "d2sd_tree", f"d2sd{COST_AWARE}")
QUICKEST = ", quickest here"  # in titles, after the name of the method
NAMES = {method.id: method.name for method in METHODS.values()}


def lane_of(method: str, cost_aware: bool) -> str:
    """Returns the lane of a method."""
    return method + COST_AWARE if cost_aware else method


def trace_lane(trace: Trace) -> str:
    """Returns the lane of a recorded run."""
    return lane_of(trace.header["method"], trace.header["config"].get("cost_aware") is True)


def method_of(lane: str) -> str:
    """Returns the method of a lane."""
    return lane.removesuffix(COST_AWARE)


def lane_title(lane: str) -> str:
    """Returns the name of a method or lane, with its id."""
    method = method_of(lane)
    return f"{NAMES[method]}{QUICKEST if lane != method else ''} ({lane})"


def run_title(header: Mapping[str, Any]) -> str:
    """Returns the name of a run's method, or its id if it is not one of these."""
    method, config = str(header.get("method", "run")), header.get("config")
    cost_aware = isinstance(config, Mapping) and config.get("cost_aware") is True
    return NAMES.get(method, method[:40]) + (QUICKEST if cost_aware else "")


def grouped(lanes: Collection[str]) -> dict[str, dict[str, str]]:
    """Returns the titles of these methods or lanes, by id, in their groups; empty groups are left out."""
    groups: dict[str, dict[str, str]] = {group: {} for group in GROUPS}
    for method in METHODS.values():
        groups[method.group] |= {lane: lane_title(lane) for lane in lanes if method_of(lane) == method.id}
    return {group: titles for group, titles in groups.items() if titles}
