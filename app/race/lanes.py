"""The lanes of a race: their names and runs, and the recorded race that the page opens with."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from app.presets import ASSETS
from d2sd import METHODS, DecodeConfig, Trace
from d2sd.trace.trace import parse_trace

COST_AWARE = " cost-aware"  # in the name of a lane, after its method
LANES = (*METHODS, f"d2sd{COST_AWARE}")
DEFAULT = ("autoregressive", "dflash", "eagle3", "d2sd", "d2sd_tree", f"d2sd{COST_AWARE}")
RECORDED = ASSETS / "traces" / "race.json.gz"


@dataclass(frozen=True, slots=True)
class Lane:
    """The run of one method. ``problem``: why it failed, or an empty string."""

    trace: Trace
    problem: str = ""

    @property
    def complete(self) -> bool:
        """Whether the run ended without being stopped."""
        return self.trace.finished is not None and self.trace.finished.stop_reason != "stopped"


@dataclass(frozen=True, slots=True)
class Race:
    """One prompt through several methods.

    methods: names of the lanes, in the order in which they run.
    lanes: the runs so far.
    status: progress as a sentence; empty at the end.
    recorded: whether it is a stored race, possibly from another machine.
    asked: the requested settings, without the defaults that the engine fills in for each method.
    """

    prompt: str
    methods: tuple[str, ...]
    lanes: tuple[Lane, ...] = ()
    status: str = ""
    recorded: bool = False
    asked: DecodeConfig = field(default_factory=DecodeConfig)


def lane_name(trace: Trace) -> str:
    """Returns the name of a run's lane: the method, with a suffix if it was cost-aware."""
    return name_of(trace.header["method"], trace.header["config"].get("cost_aware") is True)


def name_of(method: str, cost_aware: bool) -> str:
    """Returns the name of a method's lane."""
    return method + COST_AWARE if cost_aware else method


def method_of(lane: str) -> str:
    """Returns the method in the name of a lane."""
    return lane.removesuffix(COST_AWARE)


def recorded() -> dict[str, Any]:
    """Returns what ``app.record`` wrote of a race: ``traces`` of its lanes, and ``whatif`` answers; empty if there is none."""
    return json.loads(gzip.decompress(RECORDED.read_bytes())) if RECORDED.exists() else {}


@cache
def recorded_race() -> Race:
    """Returns the recorded race; one without lanes if there is none."""
    lanes = tuple(Lane(parse_trace(trace.encode())) for trace in recorded().get("traces", ()))
    if not lanes:
        return Race("", ())
    methods = tuple(lane_name(lane.trace) for lane in lanes)
    return Race(str(lanes[0].trace.header["prompt"]), methods, lanes, recorded=True)
