"""Figures of the rows of a benchmark, or of the checkpoints of a training run, measured on the same texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from d2sd.calibration import Estimate
from d2sd.calibration.replays import DrafterFigures, best, first_position
from d2sd.calibration.sentences import decimal, signed_decimal, with_interval
from d2sd.figures.style import (
    COLOURS,
    INK,
    ROW,
    FigureTable,
    Panel,
    Trace,
    axis,
    draw,
    places_axis,
    safe,
    scatter,
    share_axis,
    values_of,
    whiskers,
)

Rows = Sequence[Mapping[str, Any]]


def bench_panels(rows: Rows) -> Iterator[Panel]:
    question = "How many tokens does a step commit? Lines: 95% interval over prompts."
    yield _measured(
        "acceptance", "Mean acceptance length α", question, "tokens per step", rows, "mean_acceptance_length"
    )
    question = "How many tokens does decoding produce per second? Lines: 95% interval over prompts."
    yield _measured("speed", "Decoding speed", question, "tokens per second", rows, "tokens_per_second")


def _measured(id: str, title: str, question: str, unit: str, rows: Rows, name: str) -> Panel:
    """Returns a panel with a dot for each row: the field ``name`` with its interval. The first row is at the top."""
    figures = [Estimate(row[name], *(row[f"{name}_interval"] or ())) for row in rows]
    words = [with_interval(figure, decimal) for figure in figures]
    hovers = [f"{safe(row['label'])}: {said}" for row, said in zip(rows, words, strict=True)]
    look = {"marker": {"size": 9, "color": INK}, "showlegend": False, **whiskers(figures, "x")}
    dots = scatter("markers", values_of(figures), list(range(len(rows))), hovers, **look)
    table = FigureTable(("Method", unit), tuple((row["label"], said) for row, said in zip(rows, words, strict=True)))
    figure = draw(
        [dots],
        height=130 + ROW * len(rows),
        margin={"l": 44, "r": 12, "t": 12, "b": 44},
        xaxis=axis(unit, rangemode="tozero"),
        yaxis=places_axis([safe(row["label"]) for row in rows], range=[len(rows) - 0.5, -0.5]),
    )
    return Panel(id, title, question, figure, table)


# Checkpoints.


def board_panels(rows: Sequence[DrafterFigures], steps: Sequence[int | None], second: bool = False) -> Iterator[Panel]:
    """Yields the panels of α and of the first position. A checkpoint whose training step is unknown appears only in the tables.

    rows: result of ``compare_checkpoints``.
    steps: training step of each row.
    second: whether the checkpoints are second drafters.
    """
    kind = "second" if second else "first"
    alphas = [row.whole.alpha for row in rows]
    table = [
        (
            row.name,
            with_interval(row.whole.alpha, decimal, "[]"),
            "–" if row.whole.difference is None else with_interval(row.whole.difference, signed_decimal, "[]"),
            f"{row.whole.steps}",
        )
        for row in rows
    ]
    yield Panel(
        "alpha",
        "α over training",
        "For every checkpoint: committed tokens per step, over the same texts.",
        _over_steps(
            rows, steps, alphas, [f"α {with_interval(a, decimal, '[]')}" for a in alphas], kind, axis("α", nticks=6)
        ),
        FigureTable(
            ("Checkpoint", "α [95%]", "Difference from the last checkpoint [95% for all rows]", "Steps"),
            tuple(table),
        ),
    )
    shares = [row.reached[0] if row.reached else Estimate(None) for row in rows]
    words = [first_position(row) for row in rows]
    yield Panel(
        "first-position",
        "First position over training",
        "In what share of all steps is the first drafted token accepted?",
        _over_steps(rows, steps, shares, [f"first position accepted: {w}" for w in words], kind, share_axis()),
        FigureTable(("Checkpoint", "Accepted [95%]"), tuple((r.name, w) for r, w in zip(rows, words, strict=True))),
    )


def _over_steps(
    rows: Sequence[DrafterFigures],
    steps: Sequence[int | None],
    figures: Sequence[Estimate],
    words: Sequence[str],
    kind: str,
    up: Trace,
) -> go.Figure:
    """Draws a line with intervals over training steps. A ring marks the best checkpoint."""
    shown = [
        (step, figure, f"{row.name}: {said}", row)
        for row, step, figure, said in zip(rows, steps, figures, words, strict=True)
        if step is not None and figure.value is not None
    ]
    found, colour, chosen = [figure for _, figure, _, _ in shown], COLOURS[kind], best(rows)
    line = scatter(
        "lines+markers",
        [step for step, *_ in shown],
        values_of(found),
        [said for _, _, said, _ in shown],
        name="checkpoint, 95% interval",
        line={"color": colour, "width": 2},
        marker={"size": 7, "color": colour},
        **whiskers(found, color=colour),
    )
    ring = scatter(
        "markers",
        [step for step, _, _, row in shown if row is chosen],
        [figure.value for _, figure, _, row in shown if row is chosen],
        name=f"highest α: {chosen.name}",
        marker={"symbol": "circle-open", "size": 15, "color": INK, "line": {"width": 1.5}},
    )
    return draw([line, ring], xaxis=axis("training steps", rangemode="tozero"), yaxis=up)
