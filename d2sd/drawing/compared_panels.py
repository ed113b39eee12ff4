"""Panels of comparisons: two sets of runs, and what-if results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from d2sd.calibration.comparison import Comparison
from d2sd.calibration.report import Curves
from d2sd.calibration.sides import Difference
from d2sd.costs.machines import MACHINES
from d2sd.drawing.sweeps import Recorded, Sweep, looks, sweep_reading, what_if
from d2sd.drawing.where import how_written, p_value, place_name, where
from d2sd.figures.comparison import COMPARED, compared_figures, differences, rank_curves, reliability_curves
from d2sd.figures.panels import Panel, Table
from d2sd.figures.style import digits, percent, signed, with_interval


def comparison_panels(found: Comparison, a: Curves, b: Curves) -> Iterator[Panel]:
    """The differences between two sides, and the curves of both."""
    yield Panel(
        "differences",
        "B − A",
        "Every difference with its interval, each on a separate scale. It is clear if the interval excludes 0.",
        differences(found),
        _differences(
            compared_figures(found),
            [COMPARED[d.name][0] for d in compared_figures(found)],
        ),
    )
    places = [*found.groups, *found.positions]
    if places:
        yield Panel(
            "where",
            "Where they differ",
            "By prompt group and by position in the first draft. p is corrected for the number of places by Holm’s method; "
            "each interval is a 95% interval by itself.",
            where(found),
            _where(places),
        )
    bins = [(n, d) for n, d in enumerate(found.bins) if d.count_a or d.count_b]
    yield Panel(
        "both-reliability",
        "Reliability, both",
        "Of the tokens drafted with this confidence, how many does the target accept? On the diagonal the confidence is honest.",
        reliability_curves(a.uniform, b.uniform),
        _differences([d for _, d in bins], [f"Confidence {n / 10:.1f}–{(n + 1) / 10:.1f}" for n, _ in bins]),
    )
    yield Panel(
        "both-ranks",
        "Boundary, both",
        "How often is the true boundary among the K likeliest?",
        rank_curves(a.ranks, b.ranks),
        _differences(found.within, [f"K = {n}" for n in range(1, len(found.within) + 1)]),
    )


def sweep_panels(sweeps: Sequence[Sweep], recorded: Recorded) -> Iterator[Panel]:
    """The figures of settings that were varied. Speedups are calculated, for an 8B model on every known machine."""
    look = looks(sweeps)
    for sweep in sweeps:
        rows = []
        for line in sweep.lines:
            for point in line.points[:1] if line.flat else line.points:
                value = f"{sweep.symbol} not used" if line.flat else f"{sweep.symbol} = {sweep.values[point.at]}"
                speedups = (digits(point.speedups.get(name), 2) for name in MACHINES)
                rows.append(
                    (value, line.method, f"{digits(point.alpha, 2)}{point.interval}", digits(point.nodes, 1), *speedups)
                )
        yield Panel(
            sweep.symbol,
            f"{sweep.label[:1].upper()}{sweep.label[1:]}",
            sweep_reading(sweep, recorded),
            what_if(sweep, recorded, look),
            Table(
                ("Setting", "Method", "α", "Nodes per step", *(f"× on {m.name}" for m in MACHINES.values())),
                tuple(rows),
            ),
        )


def _where(places: Sequence[Difference]) -> Table:
    rows = []
    for d in places:
        write, change = how_written(d)
        sides = (with_interval(d.a, write), with_interval(d.b, write))
        p = "" if d.p is None else p_value(d.p)
        says = "too few" if d.p is None else "clear" if d.clear else "not clear"
        counts = (f"{d.count_a}", f"{d.count_b}")
        rows.append((place_name(d), *counts, *sides, with_interval(d.difference, change), p, says))
    return Table(("", "n of A", "n of B", "A", "B", "B − A (95%)", "p (Holm)", ""), tuple(rows))


def _differences(rows: Sequence[Difference], names: Sequence[str]) -> Table:
    cells = []
    for d, name in zip(rows, names, strict=True):
        _, _, write, change = COMPARED.get(d.name, ("", "", percent, signed))
        says = "" if d.difference.low is None else "clear" if d.clear else "not clear"
        sides = (with_interval(d.a, write), with_interval(d.b, write))
        cells.append((name, f"{d.count_a}", f"{d.count_b}", *sides, with_interval(d.difference, change), says))
    return Table(("", "n of A", "n of B", "A", "B", "B − A (95% for all)", ""), tuple(cells))
