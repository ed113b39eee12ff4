"""The figure of where drafting should stop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from d2sd.calibration.thresholds import THRESHOLDS, Stop, Stops, caption, stop_table, verdict
from d2sd.figures.style import (
    COLOURS,
    EDGE,
    INK,
    Panel,
    Trace,
    axis,
    draw,
    hover_texts,
    places_axis,
    scatter,
    values_of,
    whiskers,
)

LOOKS = {  # by rule: name, colour, dash pattern, marker
    "product": ("product of confidences", "first", "solid", "circle"),
    "single": ("single confidence", "second", "dash", "diamond"),
    "length": ("fixed length", "target", "dot", "square"),
}
CHOSEN = "chosen on half the prompts"
MOST_TIME = 1.5  # upper end of the time axis (1: time with whole drafts); very short drafts exceed it


def stops_panel(stops: Stops) -> Panel:
    """Returns the panel of α, nodes and, if costs are known, time per token. The left half is by threshold, the right half by draft
    length.
    """
    table, (*cuts, whole) = stop_table(stops), stops.stops
    hovers = dict(zip((whole, *cuts), hover_texts(table), strict=False))  # the table ends with rows of prompt groups
    lines: list[Trace] = []
    rings: list[Trace] = []
    for rule in LOOKS:
        shown = [s for s in stops.stops if s.rule == rule]
        if rule != "length":
            shown.insert(0, whole)
        places = {stop: stop.value if rule == "length" else float(n) for n, stop in enumerate(shown)}
        lines += _lines(rule, places, hovers)
        chosen = {(advice.stop.rule, advice.stop.value) for advice in stops.advice or ()}
        rings += _rings(rule, {stop: place for stop, place in places.items() if (stop.rule, stop.value) in chosen})
    for ring in rings[1:]:
        ring["showlegend"] = False
    ticks = [name if n % 3 == 0 else "" for n, name in enumerate(["none", *(f"{t:g}" for t in THRESHOLDS)])]
    bottom, heights = ("y3", [(0.62, 1), (0.33, 0.55), (0, 0.26)]) if stops.machine else ("y2", [(0.42, 1), (0, 0.34)])
    lengths = {"showgrid": False, "range": [0.5, whole.value + 0.5], "dtick": max(1, round(whole.value / 5))}
    axes: dict[str, Any] = {
        "xaxis": places_axis(ticks, "threshold", anchor=bottom, domain=[0, 0.56]),
        "xaxis2": axis("drafted tokens", anchor=bottom, domain=[0.6, 1], **lengths),
        "yaxis": axis("α", domain=heights[0], nticks=6),
        "yaxis2": axis("nodes", domain=heights[1], rangemode="tozero", nticks=4),
    }
    if stops.machine:
        ends = [end for s in stops.stops for end in (s.slowdown.low, s.slowdown.high) if end is not None]
        span = [min(ends, default=0.9) - 0.05, min(MOST_TIME, max(ends, default=1.1) + 0.02)]
        axes["yaxis3"] = axis("time/token", domain=heights[2], nticks=4, tickformat=".0%", range=span)
    height = 460 if stops.machine else 360
    figure = draw([*lines, *rings], height=height, margin={"l": 46, "r": 12, "t": 24, "b": 90}, **axes)
    question = f"{verdict(stops).text} {caption(stops)}"
    return Panel("stops", "Where should drafting stop?", question, figure, table)


def _rows(rule: str, places: Mapping[Stop, float]) -> Iterator[tuple[Trace, list[Any]]]:
    """Yields the traces' common options and the values for each row of the plot, if all of the row's values are known."""
    rows = {"y": [s.alpha for s in places], "y2": [s.nodes for s in places], "y3": [s.slowdown for s in places]}
    for yaxis, figures in rows.items():
        if figures and all(figure.value is not None for figure in figures):
            yield {"xaxis": "x2" if rule == "length" else "x", "yaxis": yaxis}, figures


def _lines(rule: str, places: Mapping[Stop, float], hovers: Mapping[Stop, str]) -> Iterator[Trace]:
    """Yields the line of a rule for every row of the plot."""
    name, colour, dash, symbol = LOOKS[rule]
    for axes, figures in _rows(rule, places):
        yield scatter(
            "lines+markers",
            [*places.values()],
            values_of(figures),
            [hovers[stop] for stop in places],
            name=name,
            legendgroup=rule,
            showlegend=axes["yaxis"] == "y",
            line={"color": COLOURS[colour], "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 6, "color": COLOURS[colour]},
            **axes,
            **whiskers(figures, color=EDGE, thickness=1, width=2),
        )


def _rings(rule: str, places: Mapping[Stop, float]) -> Iterator[Trace]:
    ring = {"symbol": "circle-open", "size": 14, "color": INK, "line": {"width": 1.5}}
    for axes, figures in _rows(rule, places):
        options = {"name": CHOSEN, "legendgroup": CHOSEN, "marker": ring, **axes}
        yield scatter("markers", [*places.values()], values_of(figures), **options)
