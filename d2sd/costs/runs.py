"""Costs of recorded runs: the machine that recorded one, from its own times, and whether these can be right."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from statistics import fmean, median

from d2sd.costs.machines import Curve, Machine
from d2sd.trace.events import Event, StageSeconds, StepDone
from d2sd.trace.metrics import Work
from d2sd.trace.trace import Trace

LINE = Curve(((1, 1.0), (2, 2.0)))  # every node costs the same


def works_of(trace: Trace) -> list[Work]:
    return [Work.of(step, trace.header) for step in trace.steps]


def mean_cost(machine: Machine, trace: Trace) -> float | None:
    """Returns the mean cost of a run's steps on a machine, in plain decoding steps; None if it is not known, or there is no step."""
    total = machine.plain_steps(str(trace.header.get("method")), works_of(trace))
    return None if total is None or not trace.steps else total / len(trace.steps)


def here(trace: Trace, plain: float | None, unwatched: float | None, table: Machine | None = None) -> Machine | None:
    """Returns the machine that recorded a run, from its step times; None if they were not measured.

    plain: tokens per second of plain decoding there.
    unwatched: tokens per second of this run when its steps are not recorded; None for that of the trace.
    table: times over other rows on the same machine, from which the growth of a pass with its rows is taken. Without it, a
        draft takes the same time for any number of rows, and each node costs the same.

    The mean cost of the run's steps equals the measured one: α · plain ÷ unwatched in plain steps.
    """
    totals, works = trace.totals, works_of(trace)
    speed = unwatched or totals.tokens_per_second
    stages = totals.stage_seconds
    if not plain or not speed or not works or not sum(stages.values()):
        return None
    tokens = sum(len(step.committed) for step in trace.steps)
    scale = tokens / speed / sum(stages.values())  # recording a step takes time, and so does what is between stages
    other = scale * (stages["tree"] + stages["commit"]) / len(works)
    first = [w.first for w in works if w.first]
    again = [rows for w in works for rows in w.again]
    nodes = [w.nodes for w in works if w.nodes > 1]
    verified = scale * stages["verify"]
    one = max(1e-9, 1 / plain - other)
    machine = Machine(
        first_draft=_through(first, scale * stages["first_draft"], None if table is None else table.first_draft),
        second_draft=_through(again, scale * stages["second_draft"], None if table is None else table.second_draft),
        verify=Curve(((1, one),)),
        other=other,
        name="Here",
        source="Measured on the machine that recorded this run.",
    )
    if not nodes:
        return machine
    each = (verified - one * (len(works) - len(nodes))) / len(nodes)
    shape = LINE if table is None else table.verify
    grown = fmean(map(shape.seconds, nodes)) - shape.seconds(1)
    slope = max(0.0, each - one) / grown if grown > 0 else 0.0
    points = [(1, one), *((rows, one + slope * (t - shape.seconds(1))) for rows, t in shape.points if rows > 1)]
    return replace(machine, verify=Curve.through(points))


def _through(rows: list[int], seconds: float, table: Curve | None) -> Curve:
    """Returns a curve whose mean over these rows equals the measured one."""
    if not rows:
        return Curve(((1, 0.0),)) if table is None else table
    mean = seconds / len(rows)
    if table is None:
        return Curve(((1, mean),))
    ratio = mean / max(1e-12, fmean(map(table.seconds, rows)))
    return Curve(tuple((at, ratio * t) for at, t in table.points))


# The time of a plain step, and whether measured times can be right.

MOST_SPREAD = 1.1  # between the medians of the halves of measured plain steps
LEAST_PASS = 0.9  # of a plain step's pass: verifying may take less than that by chance alone
# Of the time of steps on a CPU, in which their thread computed. Measured on two cores with one thread or two: 0.98 and more on an
# idle machine; 0.73 to 0.89 while a browser on these cores draws the run; 0.18 to 0.33 if programs keep both busy besides.
LEAST_COMPUTED = 0.9
LEAST_WATCHED = 0.6  # the same for a run that is drawn: the rest is left out of its time


def plain_step(times: Sequence[StageSeconds], context: int, day: str) -> tuple[Machine, bool]:
    """Returns a machine that knows nothing but the time of a step of plain decoding, the median of these, and whether the medians
    of their earlier and their later half differ by a tenth at most.

    times: of two or more steps of plain decoding, in their order.
    context: number of tokens before them, on average.
    day: the date on which they were measured, in ISO format.
    """
    half, totals = len(times) // 2, [seconds.total for seconds in times]
    halves = median(totals[:half]), median(totals[half:])
    verify = min(median(totals), median(seconds.verify for seconds in times))
    nothing, once = Curve(((1, 0.0),)), Curve(((1, verify),))
    costs = Machine(nothing, nothing, once, median(totals) - verify, measured=day, context=context)
    return costs, max(halves) <= MOST_SPREAD * min(halves)


class ThreadShare:
    """The share of the time of steps in which the thread that runs them computed: others push it aside on a busy machine.

    wall: the time in seconds.
    thread: the time in seconds for which the calling thread has computed.
    """

    def __init__(
        self, wall: Callable[[], float] = time.perf_counter, thread: Callable[[], float] = time.thread_time
    ) -> None:
        self._clocks = wall, thread
        self._seconds = [0.0, 0.0]

    def watched(self, events: Iterator[Event]) -> Generator[Event, None, None]:
        """Yields the events of a run, on the thread that runs it, and adds the time of its steps."""
        with closing(events):  # type: ignore[type-var]
            while True:
                began = [clock() for clock in self._clocks]
                if (event := next(events, None)) is None:
                    return
                if isinstance(event, StepDone):
                    passed = (clock() - start for clock, start in zip(self._clocks, began, strict=True))
                    self._seconds = [sum(both) for both in zip(self._seconds, passed, strict=True)]
                yield event

    @property
    def computed(self) -> float:
        """The share of the time in which the thread computed; 1 if nothing was measured."""
        wall, thread = self._seconds
        return min(1.0, thread / wall) if wall else 1.0

    @property
    def disturbed(self) -> bool:
        """Whether other work kept the thread from the processor for more than a tenth of the time."""
        return self.computed < LEAST_COMPUTED


def impossible(verified: float, plain: float) -> bool:
    """Returns whether verifying took less time than a pass over one token in plain decoding, which cannot be: the machine was busy
    with other work when one of the two was measured. A price of such a step in plain steps is too low.

    verified: mean seconds of the target's pass in the steps of a run; 0 if no stages were timed.
    plain: the same of plain decoding.
    """
    return 0 < verified < LEAST_PASS * plain
