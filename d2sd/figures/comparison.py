"""Results of a comparison for reports, and the figure of the differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from d2sd.calibration import Estimate, RunStatistics
from d2sd.calibration.comparison import Comparison, Difference
from d2sd.calibration.report import compare_runs
from d2sd.calibration.sentences import COMPARED, how_compared, read_comparison, with_interval
from d2sd.figures.style import (
    EDGE,
    INK,
    MUTED,
    PANEL,
    ROW,
    FigureTable,
    Panel,
    axis,
    draw,
    places_axis,
    scatter,
    values_of,
    vertical,
    whiskers,
)
from d2sd.methods import METHODS, unused
from d2sd.trace.metrics import what_differs


@dataclass(frozen=True, slots=True)
class ComparisonResults:
    """The parts of a comparison that a report shows. The sides A and B are sets of runs.

    comparison: the values of both sides and their differences.
    reading: a sentence about the settings that differ, then sentences about the differences in ``comparison``.
    how: an explanation of the intervals.
    panel: the differences as a figure.
    """

    comparison: Comparison
    reading: tuple[str, ...]
    how: str
    panel: Panel


def method_name(method: str) -> str:
    return METHODS[method].name if method in METHODS else method


def comparison_results(a: RunStatistics, b: RunStatistics) -> ComparisonResults:
    """Compares two sets of runs.

    a, b: the statistics of side A and of side B.
    """
    found = compare_runs(a, b)
    return ComparisonResults(
        found,
        (what_differs(a.headers, b.headers, unused, method_name), *read_comparison(found)),
        how_compared(found),
        differences_panel(found),
    )


def differences_panel(found: Comparison) -> Panel:
    return Panel(
        "differences",
        "B − A",
        "The differences with their intervals. Every row has a separate scale. A difference is clear if its interval excludes 0.",
        differences(found),
        _differences(found.figures),
    )


def _differences(rows: Sequence[Difference]) -> FigureTable:
    cells = []
    for d in rows:
        name, write, change = COMPARED[d.name]
        says = "" if d.difference.low is None else "clear" if d.difference.excludes_zero else "not clear"
        sides = (with_interval(d.a, write), with_interval(d.b, write))
        cells.append((name, f"{d.count_a}", f"{d.count_b}", *sides, with_interval(d.difference, change), says))
    return FigureTable(("", "n of A", "n of B", "A", "B", "B − A (95% for all rows)", ""), tuple(cells))


NO_INTERVALS = {
    "text": "There are too few steps for intervals. The table has the values.",
    "xref": "paper",
    "yref": "paper",
    "x": 0.5,
    "y": 0.5,
    "showarrow": False,
    "bgcolor": PANEL,
}


def differences(found: Comparison) -> go.Figure:
    """Draws every difference B − A that has an interval, each on a separate scale. Dots of clear differences are filled."""
    rows = [d for d in found.figures if d.difference.low is not None]
    traces = []
    for clear, name in ((True, "clear"), (False, "not clear")):
        chosen = [(n, d) for n, d in enumerate(rows) if d.difference.excludes_zero == clear]
        scaled = [to_reach(d.difference) for _, d in chosen]
        colour = INK if clear else MUTED
        traces.append(
            scatter(
                "markers",
                values_of(scaled),
                [n for n, _ in chosen],
                [difference_words(d) for _, d in chosen],
                name=name,
                marker={"size": 8, "color": colour if clear else PANEL, "line": {"color": colour, "width": 1.5}},
                **whiskers(scaled, "x", color=colour, thickness=2 if clear else 1.25, width=5),
            )
        )
    return draw(
        traces,
        height=120 + ROW * max(1, len(rows)),
        margin={"l": 30, "r": 12, "t": 28, "b": 60},
        shapes=[vertical(0, EDGE, layer="below")],
        annotations=[] if rows else [NO_INTERVALS],
        xaxis=axis("A higher ← 0 → B higher", range=[-1.15, 1.15], showticklabels=False, showgrid=False),
        yaxis=places_axis([COMPARED[d.name][0] for d in rows], range=[max(1, len(rows)) - 0.5, -0.5]),
    )


def to_reach(figure: Estimate) -> Estimate:
    """Returns a difference, scaled so that the interval's end farther from 0 is at 1 or -1."""
    value, low, high = (end or 0.0 for end in (figure.value, figure.low, figure.high))
    reach = max(abs(low), abs(high), 1e-9)
    return Estimate(value / reach, low / reach, high / reach)


def difference_words(d: Difference) -> str:
    name, write, change = COMPARED[d.name]
    return f"{name}: {write(d.a.value)} → {write(d.b.value)}<br>B − A {with_interval(d.difference, change)}"
