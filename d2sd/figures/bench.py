"""Figures of a benchmark: acceptance length and speed of every entry with their intervals, and where the time of a step goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from d2sd.calibration import Estimate
from d2sd.figures.calibration import ROW
from d2sd.figures.panels import Panel, Table
from d2sd.figures.style import CATEGORIES, Trace, axis, digits, draw, places_axis, safe, whiskers, with_interval

Rows = Sequence[Mapping[str, Any]]


def bench_panels(rows: Rows) -> Iterator[Panel]:
    """Yields the figures of a benchmark's rows, as ``d2sd.bench.report.summarise`` gives them."""
    question = "How many tokens does a step commit? Bars: 95% interval over prompts."
    yield _measured(
        "acceptance", "Mean acceptance length α", question, "tokens per step", rows, "mean_acceptance_length"
    )
    question = "How many tokens does decoding give in a second? Bars: 95% interval over prompts."
    yield _measured("speed", "Decoding speed", question, "tokens per second", rows, "tokens_per_second")
    timed = [row for row in rows if row["seconds_per_step"]]
    if timed:
        yield _stages(timed)


def _measured(id: str, title: str, question: str, unit: str, rows: Rows, name: str) -> Panel:
    """One dot per row, with the interval of the figure ``name``."""
    figures = [Estimate(row[name], *(row[f"{name}_interval"] or ())) for row in rows]
    words = [with_interval(figure, lambda value: digits(value, 2)) for figure in figures]
    values = [row[name] for row in rows]
    dots: Trace = {
        "type": "scatter",
        "mode": "markers",
        "x": values,
        "y": list(range(len(rows))),
        "marker": {"size": 9, "color": CATEGORIES[0]},
        "hovertext": [f"{safe(row['label'])}: {said}" for row, said in zip(rows, words, strict=True)],
        "hoverinfo": "text",
        "showlegend": False,
        **whiskers(values, figures, "x"),
    }
    table = Table(("Method", unit), tuple((row["label"], said) for row, said in zip(rows, words, strict=True)))
    figure = _by_row([dots], rows, axis(unit, rangemode="tozero"), margin={"l": 44, "r": 12, "t": 12, "b": 44})
    return Panel(id, title, question, figure, table)


def _stages(rows: Rows) -> Panel:
    """One bar per row, of its stages one after another."""
    names = list(dict.fromkeys(stage for row in rows for stage in row["seconds_per_step"]))
    milliseconds = [[1e3 * row["seconds_per_step"].get(stage, 0.0) for stage in names] for row in rows]
    bars: list[Trace] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": stage.replace("_", " "),
            "x": [times[n] for times in milliseconds],
            "y": list(range(len(rows))),
            "marker": {"color": CATEGORIES[n % len(CATEGORIES)]},
            "hovertemplate": "%{x:.2f} ms",
        }
        for n, stage in enumerate(names)
    ]
    head = ("Method", *(stage.replace("_", " ") for stage in names))
    cells = tuple(
        (row["label"], *(digits(time, 2) for time in times)) for row, times in zip(rows, milliseconds, strict=True)
    )
    figure = _by_row(bars, rows, axis("ms per step", rangemode="tozero"), barmode="stack")
    return Panel("stages", "Time of a step", "Which stages does the time of a step go to?", figure, Table(head, cells))


def _by_row(traces: list[Trace], rows: Rows, along: dict[str, Any], **layout: Any) -> go.Figure:
    """A figure with a line for each row, the first one at the top."""
    names = places_axis([safe(row["label"]) for row in rows], range=[len(rows) - 0.5, -0.5])
    return draw(traces, height=130 + ROW * len(rows), hovermode="closest", xaxis=along, yaxis=names, **layout)
