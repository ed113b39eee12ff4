"""What the steps of each method bring, and what they cost on another machine, added up over runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from d2sd.costs.here import works_of
from d2sd.costs.known import DEFAULT, MACHINES
from d2sd.trace.trace import Trace

PLAIN = "autoregressive"


@dataclass(frozen=True, slots=True)
class Place:
    """A method on the break-even map.

    method: its id; a report may put a name there.
    alpha: mean committed tokens per step.
    there: mean cost of a step on the default machine of ``d2sd.costs.known``, in plain decoding steps: the α that breaks even.
    here: the same, as measured on this machine. None: not known.
    """

    method: str
    alpha: float
    there: float | None
    here: float | None = None


class Places:
    """Adds up the steps of runs by their method; those of plain decoding, and where no drafter's time is known, are left out."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, int, float]] = {}

    def add(self, trace: Trace) -> None:
        """Add the steps of a run."""
        method = str(trace.header.get("method"))
        cost = None if method == PLAIN else MACHINES[DEFAULT].plain_steps(method, works_of(trace))
        if cost is None or not trace.steps:
            return
        steps, tokens, before = self._sums.get(method, (0, 0, 0.0))
        more = sum(len(step.committed) for step in trace.steps)
        self._sums[method] = (steps + len(trace.steps), tokens + more, before + cost)

    def passing(self, traces: Iterable[Trace]) -> Iterator[Trace]:
        """Add runs while they are handed on."""
        for trace in traces:
            self.add(trace)
            yield trace

    def all(self) -> list[Place]:
        """Returns the methods with their means."""
        return [Place(method, tokens / steps, cost / steps) for method, (steps, tokens, cost) in self._sums.items()]
