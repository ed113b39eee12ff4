"""Names of methods on the page. A race has additional lanes for some methods with cost-aware plans (*quickest here*)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from d2sd import METHODS

PLAIN = "autoregressive"
COST_AWARE = " cost-aware"  # suffix of a lane's id
LANES = (*METHODS, *(f"{method}{COST_AWARE}" for method in ("dflash", "ddtree", "d2sd", "d2sd_tree")))
DEFAULT_LANES = ("autoregressive", "dflash", "eagle3", "d2sd", "d2sd_tree", f"d2sd{COST_AWARE}")
QUICKEST = ", “quickest here”"  # suffix of a cost-aware lane's title
NAMES = {method.id: method.name for method in METHODS.values()} | {PLAIN: "One by one"}


def lane_of(method: str, cost_aware: bool) -> str:
    return method + COST_AWARE if cost_aware else method


def run_lane(header: Mapping[str, Any]) -> str:
    """Returns the lane of a run."""
    config = header.get("config")
    cost_aware = isinstance(config, Mapping) and config.get("cost_aware") is True
    return lane_of(str(header.get("method", "run")), cost_aware)


def method_of(lane: str) -> str:
    return lane.removesuffix(COST_AWARE)


def lane_title(lane: str) -> str:
    """Returns the name of a lane's method, or its id if the method is unknown."""
    method = method_of(lane)
    return f"{NAMES.get(method, method[:40])}{QUICKEST if lane != method else ''}"


def run_title(header: Mapping[str, Any]) -> str:
    return lane_title(run_lane(header))


def ordered(lanes: Collection[str]) -> list[tuple[str, str]]:
    """Returns the titles and ids of methods or lanes, the main ones first."""
    main = [lane for lane in DEFAULT_LANES if lane in lanes]
    ids = [*main, *(lane for lane in lanes if lane not in main)]
    return [(lane_title(lane) + " (plain decoding)" * (lane == PLAIN), lane) for lane in ids]
