"""The figure of the differences between two sets of runs."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from d2sd.calibration import Estimate
from d2sd.calibration.comparison import Comparison, Difference
from d2sd.calibration.sentences import COMPARED, difference_words, with_interval
from d2sd.figures.style import (
    EDGE,
    INK,
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

NO_INTERVALS = "There are too few steps for intervals. The table has the values."


def differences_panel(found: Comparison) -> Panel:
    """Returns the figure of a comparison with its table.

    found: result of ``d2sd.calibration.report.compare_runs``.
    """
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
        name, write, *_ = COMPARED[d.name]
        sides = (with_interval(d.a, write), with_interval(d.b, write))
        cells.append((name, f"{d.count_a}", f"{d.count_b}", *sides, difference_words(d)))
    return FigureTable(
        ("", "n of A", "n of B", "A", "B", "B compared with A (95% confidence for all rows together)"), tuple(cells)
    )


def differences(found: Comparison) -> go.Figure:
    """Draws every difference B − A that has an interval, each on a separate scale. Dots of clear differences are filled."""
    rows = [d for d in found.figures if d.difference.low is not None]
    scaled = [_scaled(d.difference) for d in rows]
    colours = [INK if d.difference.excludes_zero else PANEL for d in rows]
    marks = scatter(
        "markers",
        values_of(scaled),
        list(range(len(rows))),
        list(map(_hover, rows)),
        marker={"size": 8, "color": colours, "line": {"color": INK, "width": 1.5}},
        **whiskers(scaled, "x", width=5),
    )
    few = {"text": NO_INTERVALS, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    return draw(
        [marks],
        height=120 + ROW * max(1, len(rows)),
        margin={"l": 30, "r": 12, "t": 28, "b": 60},
        shapes=[vertical(0, EDGE, layer="below")],
        annotations=[] if rows else [few],
        xaxis=axis("A higher ← 0 → B higher", range=[-1.15, 1.15], showticklabels=False, showgrid=False),
        yaxis=places_axis([COMPARED[d.name][0] for d in rows], range=[max(1, len(rows)) - 0.5, -0.5]),
    )


def _scaled(figure: Estimate) -> Estimate:
    """Returns a difference, scaled so that the interval's end farther from 0 is at 1 or -1."""
    value, low, high = (end or 0.0 for end in (figure.value, figure.low, figure.high))
    reach = max(abs(low), abs(high), 1e-9)
    return Estimate(value / reach, low / reach, high / reach)


def _hover(d: Difference) -> str:
    name, write, *_ = COMPARED[d.name]
    return f"{name}: {write(d.a.value)} → {write(d.b.value)}<br>B: {difference_words(d)}"
