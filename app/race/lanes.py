"""Names of the lanes of a race. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field

from d2sd import METHODS, DecodeConfig, Trace

COST_AWARE = " cost-aware"  # in the name of a lane, after its method
LANES = (*METHODS, f"d2sd{COST_AWARE}")


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
