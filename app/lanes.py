"""Names of the lanes of a race. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field

from d2sd import METHODS, DecodeConfig, Trace

COST_AWARE = " cost-aware"  # in the name of a lane, after its method
LANES = (*METHODS, f"d2sd{COST_AWARE}")


@dataclass(frozen=True, slots=True)
class Lane:
    """One method's run. ``problem``: why it failed; empty if it did not."""

    trace: Trace
    problem: str = ""

    @property
    def complete(self) -> bool:
        """Whether the run ended by itself."""
        return self.trace.finished is not None and self.trace.finished.stop_reason != "stopped"


@dataclass(frozen=True, slots=True)
class Race:
    """One prompt through several methods.

    methods: in the order in which they run.
    lanes: the runs so far.
    status: what is going on, empty at the end.
    recorded: it was run earlier, maybe on another machine.
    asked: the settings before the engine fills in each method's defaults.
    """

    prompt: str
    methods: tuple[str, ...]
    lanes: tuple[Lane, ...] = ()
    status: str = ""
    recorded: bool = False
    asked: DecodeConfig = field(default_factory=DecodeConfig)


def lane_name(trace: Trace) -> str:
    """Returns the name of a run's lane: its method, and whether that was cost-aware."""
    return name_of(trace.header["method"], trace.header["config"].get("cost_aware") is True)


def name_of(method: str, cost_aware: bool) -> str:
    """Returns the name of a method's lane."""
    return method + COST_AWARE if cost_aware else method


def method_of(lane: str) -> str:
    """Returns the method of a lane's name."""
    return lane.removesuffix(COST_AWARE)
