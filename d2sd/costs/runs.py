"""Costs of recorded runs: the machine that recorded a run, derived from the run's times, and checks of measured times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median

from d2sd.costs.machines import Curve, StageCosts
from d2sd.trace.events import Event, StageSeconds, StepDone
from d2sd.trace.metrics import Work
from d2sd.trace.trace import Trace

LINE = Curve(((1, 1.0), (2, 2.0)))  # every additional node adds the same time


def works_of(trace: Trace) -> list[Work]:
    return [Work.of(step, trace.header) for step in trace.steps]


def mean_cost(machine: StageCosts, trace: Trace) -> float | None:
    """Returns the mean time of a run's steps on a machine, as a multiple of a plain step's time.

    Returns None if the run has no steps, or if the machine's times for the run's method are unknown.
    """
    total = machine.plain_steps(str(trace.header.get("method")), works_of(trace))
    return None if total is None or not trace.steps else total / len(trace.steps)


def recording_machine(
    trace: Trace, plain: float | None, unwatched: float | None, table: StageCosts | None = None
) -> StageCosts | None:
    """Returns the machine that recorded a run, derived from the run's step times; None if these or ``plain`` are unknown.

    On the returned machine, the mean time of the run's steps equals the measured one: α · plain ÷ unwatched plain steps.

    plain: tokens per second of plain decoding on the machine that recorded the run.
    unwatched: tokens per second of the run without the time of recording. None: use the speed in the trace.
    table: stage times on that machine, which determine how the time of a pass grows with its number of rows. None: assume that the
        time of a draft is constant, and that the time of verifying grows linearly with the number of nodes.
    """
    totals, works = trace.totals, works_of(trace)
    speed = unwatched or totals.tokens_per_second
    stages = totals.stage_seconds
    if not plain or not speed or not works or not sum(stages.values()):
        return None
    tokens = sum(len(step.committed) for step in trace.steps)
    scale = tokens / speed / sum(stages.values())  # corrects for the time of recording and the time between stages
    other = scale * (stages["tree"] + stages["commit"]) / len(works)
    first = [w.first for w in works if w.first]
    again = [rows for w in works for rows in w.again]
    nodes = [w.nodes for w in works if w.nodes > 1]
    verified = scale * stages["verify"]
    one = max(1e-9, 1 / plain - other)
    machine = StageCosts(
        first_draft=_scaled_curve(first, scale * stages["first_draft"], table.first_draft if table else None),
        second_draft=_scaled_curve(again, scale * stages["second_draft"], table.second_draft if table else None),
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


def _scaled_curve(rows: list[int], seconds: float, table: Curve | None) -> Curve:
    """Returns ``table`` multiplied by a factor, so that passes with these numbers of rows take ``seconds`` in total.

    rows: number of rows of each pass. If there are no passes, the curve is not scaled.
    table: None for a constant curve.
    """
    if table is None:
        return Curve(((1, seconds / len(rows) if rows else 0.0),))
    if not rows:
        return table
    ratio = seconds / len(rows) / max(1e-12, fmean(map(table.seconds, rows)))
    return Curve(tuple((at, ratio * t) for at, t in table.points))


# Times of plain steps, and checks whether measured times are plausible.

MOST_SPREAD = 1.1  # largest allowed ratio between the median times of the two halves of plain steps
LEAST_PASS = 0.9  # smallest plausible time of verifying, as a fraction of a plain step's pass; below 1, since times vary by chance
# On a CPU that does nothing else, the run's thread computes during at least this share of the step time. Shares measured on two
# cores, with one or two threads: 0.98 and more on an idle machine; 0.73 to 0.89 while a browser on the same cores draws the run; 0.18
# to 0.33 if other programs also keep both cores busy.
LEAST_COMPUTED = 0.9
LEAST_WATCHED = 0.6  # the limit while a browser draws the run; the run's speed is then multiplied by 1 ÷ share


def plain_step(times: Sequence[StageSeconds], context: int, day: str) -> tuple[StageCosts, bool]:
    """Returns a machine that has only the time of a plain step, the median of ``times``, and whether this time is reliable.

    It is reliable if the medians of the first and the second half of the steps differ by at most a tenth.

    times: times of two or more plain steps, in order.
    context: mean number of tokens before the steps.
    day: date of the measurement, in ISO format.
    """
    half, totals = len(times) // 2, [seconds.total for seconds in times]
    halves = median(totals[:half]), median(totals[half:])
    verify = min(median(totals), median(seconds.verify for seconds in times))
    nothing, once = Curve(((1, 0.0),)), Curve(((1, verify),))
    costs = StageCosts(nothing, nothing, once, median(totals) - verify, measured=day, context=context)
    return costs, max(halves) <= MOST_SPREAD * min(halves)


class ThreadShare:
    """Measures the share of the step time in which the thread of a run computed. On a busy machine, the share is low.

    wall: function that returns the wall-clock time in seconds.
    thread: function that returns the CPU time of the calling thread in seconds.
    """

    def __init__(self, wall: Callable[[], float] = time.perf_counter, thread: Callable[[], float] = time.thread_time):
        self._clocks = wall, thread
        self._seconds = [0.0, 0.0]

    def next(self, events: Iterator[Event]) -> Event | None:
        """Returns the next event of a run, and None after the last one. If it is a step, adds its times to the measured times.

        The method must be called on the thread of the run.
        """
        began = [clock() for clock in self._clocks]
        event = next(events, None)
        if isinstance(event, StepDone):
            passed = (clock() - start for clock, start in zip(self._clocks, began, strict=True))
            self._seconds = [sum(both) for both in zip(self._seconds, passed, strict=True)]
        return event

    @property
    def computed(self) -> float:
        """The share of the step time in which the thread computed; 1 if no step was measured."""
        wall, thread = self._seconds
        return min(1.0, thread / wall) if wall else 1.0

    @property
    def disturbed(self) -> bool:
        """Whether the thread waited for other work on the machine during more than a tenth of the step time."""
        return self.computed < LEAST_COMPUTED


def impossible(verified: float, plain: float) -> bool:
    """Returns whether the target's pass took less time for a tree than for a single token, so that one of the times must be wrong.

    Other work on the machine has then disturbed a measurement, and the step would seem cheaper than it is.

    verified: mean seconds of the target's pass in the steps of a run; 0 if no stages were timed.
    plain: mean seconds of the target's pass in plain decoding.
    """
    return 0 < verified < LEAST_PASS * plain
