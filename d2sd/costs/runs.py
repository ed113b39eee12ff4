"""Costs of recorded runs, and the machine that recorded one, from its own times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from d2sd.costs.machines import Curve, Machine
from d2sd.trace.metrics import Totals, Work
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


# Whether measured times can be right.

LEAST_PASS = 0.9  # of a plain step's pass: verifying may take less than that by chance alone
MOST_SPREAD = 1.2  # between the slowest and the fastest of equal runs


def impossible(own: Totals, plain: Totals) -> bool:
    """Returns whether verifying took less time per step than a pass over one token in plain decoding, which cannot be: the
    machine was busy with other work during one of the two runs. A price of such a step in plain steps is too low."""
    verified, single = own.stage_seconds["verify"], plain.stage_seconds["verify"]
    if not verified or not single:  # no stages were timed
        return False
    return verified / own.steps < LEAST_PASS * single / plain.steps


def uneven(rounds: Sequence[Trace]) -> bool:
    """Returns whether equal runs, of which some may end earlier, took times that differ by more than a fifth over the steps
    that all of them have."""
    shared = min((len(trace.steps) for trace in rounds), default=0)
    if any(len(trace.steps) > shared for trace in rounds):
        shared -= 1  # the last step of a shorter run was cut
    if len(rounds) < 2 or shared < 1:
        return False
    times = [trace.steps[shared - 1].elapsed for trace in rounds]
    return max(times) > MOST_SPREAD * min(times)
