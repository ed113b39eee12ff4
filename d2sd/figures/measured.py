"""Figures of the checkpoints of a training run: α and acceptance of the first drafted token over steps of training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import plotly.graph_objects as go

from d2sd.calibration import Estimate
from d2sd.calibration.replays import Row, best, first_position
from d2sd.calibration.sentences import with_interval
from d2sd.figures.panels import Panel, Table
from d2sd.figures.style import COLOURS, INK, Trace, axis, draw, share_axis, whiskers


def board_panels(rows: Sequence[Row], steps: Sequence[int | None], second: bool = False) -> Iterator[Panel]:
    """Both figures. rows: as ``compare_checkpoints`` gives them; steps: of training, of each; second: whether they draft second.

    A checkpoint whose step is not known stands in the table alone.
    """
    kind = "second" if second else "first"
    alphas = [row.whole.alpha for row in rows]
    table = [
        (
            row.name,
            with_interval(row.whole.alpha),
            "–" if row.whole.difference is None else with_interval(row.whole.difference, "+"),
            f"{row.whole.steps}",
        )
        for row in rows
    ]
    yield Panel(
        "alpha",
        "α over training",
        "Committed tokens per step of every checkpoint over the same texts.",
        _over_steps(rows, steps, alphas, [f"α {with_interval(a)}" for a in alphas], kind, axis("α", nticks=6)),
        Table(("Checkpoint", "α [95%]", "Against the last [95% for all]", "Steps"), tuple(table)),
    )
    shares = [row.reached[0] if row.reached else Estimate(None) for row in rows]
    words = [first_position(row) for row in rows]
    yield Panel(
        "first-position",
        "First position over training",
        "Of all steps, how many accept a drafted token at the first position?",
        _over_steps(rows, steps, shares, [f"first position accepted: {w}" for w in words], kind, share_axis()),
        Table(("Checkpoint", "Accepted [95%]"), tuple((r.name, w) for r, w in zip(rows, words, strict=True))),
    )


def _over_steps(
    rows: Sequence[Row],
    steps: Sequence[int | None],
    figures: Sequence[Estimate],
    words: Sequence[str],
    kind: str,
    up: Trace,
) -> go.Figure:
    """A line over steps of training with intervals; a ring marks the best checkpoint."""
    shown = [
        (step, figure, f"{row.name}: {said}", row)
        for row, step, figure, said in zip(rows, steps, figures, words, strict=True)
        if step is not None and figure.value is not None
    ]
    values = [figure.value or 0.0 for _, figure, _, _ in shown]
    reach = whiskers(values, [figure for _, figure, _, _ in shown])
    reach["error_y"] |= {"color": COLOURS[kind]}
    line: Trace = {
        "type": "scatter",
        "name": "checkpoint, 95% interval",
        "mode": "lines+markers",
        "x": [step for step, *_ in shown],
        "y": values,
        "line": {"color": COLOURS[kind], "width": 2},
        "marker": {"size": 7, "color": COLOURS[kind]},
        "hovertext": [said for _, _, said, _ in shown],
        "hoverinfo": "text",
        **reach,
    }
    chosen = best(rows)
    ring: Trace = {
        "type": "scatter",
        "name": f"highest α: {chosen.name}",
        "mode": "markers",
        "x": [step for step, _, _, row in shown if row is chosen],
        "y": [figure.value for _, figure, _, row in shown if row is chosen],
        "marker": {"symbol": "circle-open", "size": 15, "color": INK, "line": {"width": 1.5}},
        "hoverinfo": "skip",
    }
    return draw([line, ring], xaxis=axis("steps of training", rangemode="tozero"), yaxis=up, hovermode="closest")
