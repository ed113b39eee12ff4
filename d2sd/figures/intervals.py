"""Figures of values with intervals: results of benchmarks, replays of several drafters, and differences between two sets of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from d2sd.calibration import Estimate
from d2sd.calibration.comparison import Comparison, Difference
from d2sd.calibration.replays import DrafterFigures
from d2sd.calibration.sentences import COMPARED, difference_words
from d2sd.calibration.text import Columns, Table, Write, decimal, percent, signed_decimal, with_interval
from d2sd.figures.style import (
    EDGE,
    INK,
    PANEL,
    ROW,
    Panel,
    axis,
    draw,
    hover_texts,
    rows_axis,
    safe,
    scatter,
    values_of,
    vertical,
    whiskers,
)


def bench_panels(rows: Sequence[Mapping[str, Any]]) -> Iterator[Panel]:
    """Yields the panels of α and of speed. rows: rows of ``d2sd.bench.report.summarise``."""

    def panel(id: str, title: str, question: str, unit: str, name: str) -> Panel:
        figures = [Estimate(row[name], *(row[f"{name}_interval"] or ())) for row in rows]
        question = f"{question} Lines: 95% interval over prompts."
        return _measured(id, title, question, unit, [row["label"] for row in rows], figures)

    alpha = "Mean acceptance length α", "How many tokens does a step write?", "tokens per step"
    speed = "Decoding speed", "How many tokens does decoding produce per second?", "tokens per second"
    yield panel("acceptance", *alpha, "mean_acceptance_length")
    yield panel("speed", *speed, "tokens_per_second")


def replay_panels(rows: Sequence[DrafterFigures], steps: Sequence[int | None]) -> Iterator[Panel]:
    """Yields the panels of α, of the differences from the α of the base, and of acceptance at the first position.

    rows: figures of the drafters, the result of ``compare_replays``.
    steps: training step of each drafter, or None. If no step is None, the panels show training steps instead of names.
    """
    names, alphas = [row.name for row in rows], [row.whole.alpha for row in rows]
    base = next(row.name for row in rows if row.whole.difference is None)
    differences = [row.whole.difference or Estimate(0.0) for row in rows]
    shares = [row.reached[0] if row.reached else Estimate(None) for row in rows]
    known_steps = [step for step in steps if step is not None]
    places = known_steps if len(rows) == len(known_steps) > 1 else []
    over = " over training" if places else ""
    question = "How many tokens does a step write? Lines: 95% interval."
    yield _measured("alpha", f"α{over}", question, "tokens per step", names, alphas, decimal, places)
    title = f"Difference of α from {base}{over}"
    question = "Is the difference larger than expected by chance? Lines: simultaneous 95% intervals."
    yield _measured("difference", title, question, "tokens per step", names, differences, signed_decimal, places)
    question = "In what share of all steps is the first drafted token accepted? Lines: 95% interval."
    yield _measured("first-position", f"First position{over}", question, "accepted", names, shares, percent, places)


def _measured(
    id: str, title: str, question: str, unit: str, names: Sequence[str], figures: Sequence[Estimate],
    write: Write = decimal, steps: Sequence[int] = (),
) -> Panel:  # fmt: skip
    """Returns a panel with a dot and an interval for each figure, one figure per row.

    id, title, question: as in ``Panel``.
    unit: unit of the figures, the title of their axis.
    names: name of each row.
    write: returns a figure as text.
    steps: training step of each figure. If it is given, the figures are drawn as a line over the training steps instead.
    """
    rows = tuple((name, with_interval(figure, write)) for name, figure in zip(names, figures, strict=True))
    table = Table(("", unit), rows)
    options = {"marker": {"size": 9, "color": INK}, "showlegend": False, **whiskers(figures, "y" if steps else "x")}
    values, hovers, tickformat = values_of(figures), hover_texts(table), ".0%" if write is percent else ""
    if steps:
        dots = scatter("lines+markers", steps, values, hovers, line={"color": INK, "width": 2}, **options)
        figure = draw(
            [dots], xaxis=axis("training steps", rangemode="tozero"), yaxis=axis(unit, nticks=6, tickformat=tickformat)
        )
    else:
        dots = scatter("markers", values, list(range(len(names))), hovers, **options)
        figure = draw(
            [dots],
            height=130 + ROW * len(names),
            margin={"t": 12, "b": 44},
            xaxis=axis(unit, rangemode="tozero", tickformat=tickformat),
            yaxis=rows_axis([safe(name) for name in names]),
        )
    return Panel(id, title, question, figure, table)


def differences_panel(found: Comparison) -> Panel:
    """Returns the panel of a comparison. It shows every difference B − A that has an interval, each on a separate scale.

    The dots of clear differences, whose intervals exclude 0, are filled.

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
    few = {
        "text": "There are too few steps for intervals. The table has the values.",
        "xref": "paper",
        "yref": "paper",
        "x": 0.5,
        "y": 0.5,
        "showarrow": False,
    }
    figure = draw(
        [dots],
        height=120 + ROW * max(1, len(drawn)),
        margin={"l": 30, "t": 28, "b": 60},
        shapes=[vertical(0, EDGE, layer="below")],
        annotations=[] if drawn else [few],
        xaxis=axis("A higher ← 0 → B higher", range=[-1.15, 1.15], showticklabels=False, showgrid=False),
        yaxis=rows_axis([COMPARED[d.name].label for d in drawn]),
    )
    return Panel(
        "differences",
        "B − A",
        "The differences with their intervals. Every row has a separate scale. A difference is clear if its interval excludes 0.",
        figure,
        Table.of(columns, found.figures),
    )


def _scaled(figure: Estimate) -> Estimate:
    """Returns a difference divided by a number that puts one end of its interval at 1 or −1, and the other end between them."""
    value, low, high = (end or 0.0 for end in (figure.value, figure.low, figure.high))
    reach = max(abs(low), abs(high), 1e-9)
    return Estimate(value / reach, low / reach, high / reach)
