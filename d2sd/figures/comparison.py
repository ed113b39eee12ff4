"""The figure of the differences between two sets of runs."""

from __future__ import annotations

from d2sd.calibration import Estimate
from d2sd.calibration.comparison import Comparison, Difference
from d2sd.calibration.sentences import COMPARED, difference_words
from d2sd.calibration.text import Columns, Table, with_interval
from d2sd.figures.style import (
    EDGE,
    INK,
    PANEL,
    ROW,
    Panel,
    axis,
    draw,
    hover_texts,
    places_axis,
    scatter,
    values_of,
    vertical,
    whiskers,
)

NO_INTERVALS = "There are too few steps for intervals. The table has the values."


def differences_panel(found: Comparison) -> Panel:
    """Returns the figure of a comparison with its table. Every difference B − A that has an interval is drawn on a separate scale;
    dots of clear differences are filled.

    found: result of ``d2sd.calibration.report.compare_runs``.
    """
    columns: Columns[Difference] = {
        "": lambda d: COMPARED[d.name].label,
        "n of A": lambda d: f"{d.count_a}",
        "n of B": lambda d: f"{d.count_b}",
        "A": lambda d: with_interval(d.a, COMPARED[d.name].write),
        "B": lambda d: with_interval(d.b, COMPARED[d.name].write),
        "B compared with A (95% confidence for all rows together)": difference_words,
    }
    drawn = [d for d in found.figures if d.difference.low is not None]
    scaled = [_scaled(d.difference) for d in drawn]
    colours = [INK if d.difference.excludes_zero else PANEL for d in drawn]
    dots = scatter(
        "markers",
        values_of(scaled),
        list(range(len(drawn))),
        hover_texts(Table.of(columns, drawn)),
        marker={"size": 8, "color": colours, "line": {"color": INK, "width": 1.5}},
        **whiskers(scaled, "x", width=5),
    )
    few = {"text": NO_INTERVALS, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    figure = draw(
        [dots],
        height=120 + ROW * max(1, len(drawn)),
        margin={"l": 30, "r": 12, "t": 28, "b": 60},
        shapes=[vertical(0, EDGE, layer="below")],
        annotations=[] if drawn else [few],
        xaxis=axis("A higher ← 0 → B higher", range=[-1.15, 1.15], showticklabels=False, showgrid=False),
        yaxis=places_axis([COMPARED[d.name].label for d in drawn], range=[max(1, len(drawn)) - 0.5, -0.5]),
    )
    return Panel(
        "differences",
        "B − A",
        "The differences with their intervals. Every row has a separate scale. A difference is clear if its interval excludes 0.",
        figure,
        Table.of(columns, found.figures),
    )


def _scaled(figure: Estimate) -> Estimate:
    """Returns a difference, scaled so that the interval's end farther from 0 is at 1 or -1."""
    value, low, high = (end or 0.0 for end in (figure.value, figure.low, figure.high))
    reach = max(abs(low), abs(high), 1e-9)
    return Estimate(value / reach, low / reach, high / reach)
