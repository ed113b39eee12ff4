"""Figures of what-if sweeps: α and verified nodes per step against one setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import plotly.graph_objects as go

from d2sd.calibration import Estimate
from d2sd.calibration.sentences import decimal, digits, signed_decimal
from d2sd.costs.machines import MACHINES
from d2sd.figures.style import (
    COLOURS,
    EDGE,
    INK,
    FigureTable,
    Panel,
    Trace,
    axis,
    cut,
    draw,
    places_axis,
    safe,
    scatter,
    values_of,
    vertical,
    whiskers,
)
from d2sd.methods import METHODS

# methods differ in tone and dash pattern only, since colours mark drafters
LINES = (
    ("ink", "solid"),
    ("ink", "dash"),
    ("ink", "dot"),
    ("muted", "solid"),
    ("muted", "dashdot"),
    ("muted", "longdash"),
)
WHISKERS = "Grey lines: 95% interval of α on this text."
SHAPES = ("square", "circle", "triangle-up", "diamond", "x")


class Point(msgspec.Struct, frozen=True, array_like=True):
    """The result of one method at one value of the setting.

    at: index of the value in ``Sweep.values``.
    low, high: 95% interval of α.
    nodes: verified nodes per step.
    less, more: 95% interval of the difference between this α and the recorded run's α.
    speedups: calculated speedups over plain decoding, by machine id.
    """

    at: int
    alpha: float
    nodes: float
    low: float | None = None
    high: float | None = None
    less: float | None = None
    more: float | None = None
    speedups: Mapping[str, float] = {}

    @property
    def interval(self) -> str:
        return "" if self.low is None else f" ({self.low:.2f} to {self.high:.2f})"


class Line(msgspec.Struct, frozen=True):
    """The points of one method. ``flat``: the method does not use the setting."""

    method: str
    flat: bool
    points: tuple[Point, ...]


class Sweep(msgspec.Struct, frozen=True):
    """A varied setting with its values in order, and a line for each method. ``own``: index of the recorded run's value."""

    symbol: str
    label: str
    values: tuple[str, ...]
    own: int | None
    lines: tuple[Line, ...]


class Recorded(msgspec.Struct, frozen=True):
    """The recorded run: method, measured α, verified nodes per step."""

    method: str
    alpha: float
    nodes: float


def sweep_panels(sweeps: Sequence[Sweep], recorded: Recorded) -> Iterator[Panel]:
    """Yields a panel per varied setting. Speedups are calculated for an 8B model on every known machine."""
    look = looks(sweeps)
    for sweep in sweeps:
        rows = []
        for line in sweep.lines:
            for point in line.points[:1] if line.flat else line.points:
                speedups = (decimal(point.speedups.get(name)) for name in MACHINES)
                rows.append(
                    (
                        _setting(sweep, line, point),
                        lane_name(line.method),
                        f"{decimal(point.alpha)}{point.interval}",
                        digits(point.nodes, 1),
                        *speedups,
                    )
                )
        yield Panel(
            sweep.symbol,
            f"{sweep.label[:1].upper()}{sweep.label[1:]}",
            f"{sweep_reading(sweep, recorded)}. {WHISKERS}",
            what_if(sweep, recorded, look),
            FigureTable(
                ("Setting", "Method", "α", "Nodes per step", *(f"calculated × on {m.name}" for m in MACHINES.values())),
                tuple(rows),
            ),
        )


def lane_name(lane: str) -> str:
    method = lane.removesuffix(" cost-aware")
    return f"{METHODS[method].name}{', “quickest here”' if lane != method else ''}" if method in METHODS else lane


def looks(sweeps: Sequence[Sweep]) -> dict[str, Trace]:
    """Returns colour, dash pattern and point shape of each method, the same in all sweeps. Up to 30 methods look different."""
    methods = dict.fromkeys(line.method for sweep in sweeps for line in sweep.lines)
    out = {}
    for n, method in enumerate(methods):
        colour, dash = LINES[n % len(LINES)]
        shape = {"symbol": SHAPES[n % len(SHAPES)], "size": 7, "color": COLOURS[colour]}
        out[method] = {"line": {"color": COLOURS[colour], "dash": dash, "width": 2}, "marker": shape}
    return out


def what_if(sweep: Sweep, recorded: Recorded, looks: dict[str, Trace]) -> go.Figure:
    """Draws α, and below it nodes per step, for each value of the setting. Rings mark the recorded run."""
    traces: list[Trace] = []
    for line in sweep.lines:
        at, words = [p.at for p in line.points], [point_words(sweep, line, p) for p in line.points]
        mode, look, name = "lines" if line.flat else "lines+markers", looks[line.method], safe(lane_name(line.method))
        named = {"name": name, "legendgroup": name, **look}
        figures = [Estimate(p.alpha, p.low, p.high) for p in line.points]
        reach: Trace = {} if line.flat else whiskers(figures, color=EDGE, width=4, thickness=1)
        traces.append(scatter(mode, at, values_of(figures), words, **named, **reach))
        nodes = [p.nodes for p in line.points]
        traces.append(scatter(mode, at, nodes, words, **named, yaxis="y2", showlegend=False))
    shapes: list[Trace] = []
    if sweep.own is not None:
        ring = {"symbol": "circle-open", "size": 14, "color": INK, "line": {"width": 1.5}}
        named = {"name": "as recorded", "legendgroup": "as recorded", "marker": ring}
        traces.append(scatter("markers", [sweep.own], [recorded.alpha], **named))
        traces.append(scatter("markers", [sweep.own], [recorded.nodes], **named, yaxis="y2", showlegend=False))
        shapes = [vertical(sweep.own, EDGE, "dash", layer="below")]
    title = sweep.symbol if sweep.own is None else f"{sweep.symbol} (recorded: {sweep.values[sweep.own]})"
    return draw(
        traces,
        height=340,
        margin={"l": 42, "r": 12, "t": 28, "b": 96},
        shapes=shapes,
        xaxis=places_axis(list(sweep.values), title, anchor="y2"),
        yaxis=axis("α", domain=[0.42, 1], nticks=6, tickformat=".1f"),
        yaxis2=axis("nodes", domain=[0, 0.34], rangemode="tozero", nticks=4, tickformat="d"),
    )


def _setting(sweep: Sweep, line: Line, point: Point) -> str:
    return f"{sweep.symbol} not used" if line.flat else f"{sweep.symbol} = {sweep.values[point.at]}"


def point_words(sweep: Sweep, line: Line, point: Point) -> str:
    value = _setting(sweep, line, point)
    there = "".join(
        f"<br>8B model on {machine.name}: {point.speedups[name]:.2f}×, calculated"
        for name, machine in MACHINES.items()
        if name in point.speedups
    )
    return f"{safe(lane_name(line.method))}, {value}<br>α {point.alpha:.2f}{point.interval}, {point.nodes:.1f} nodes a step{there}"


def _cheaper(points: Sequence[Point], own: Point) -> Point | None:
    """Returns the point with the fewest nodes whose rounded α is not below ``own``'s; None if it saves at most 10% of nodes."""
    equal = [p for p in points if round(p.alpha, 2) >= round(own.alpha, 2)]
    least = min(equal, key=lambda p: p.nodes, default=own)
    return least if least.nodes < 0.9 * own.nodes else None


def sweep_reading(sweep: Sweep, recorded: Recorded) -> str:
    """Returns a sentence about a sweep: about the recorded method, if the sweep contains it."""
    lines = [line for line in sweep.lines if line.points]
    own_line = next((line for line in lines if line.method == recorded.method), None)
    line = own_line or next((line for line in lines if not line.flat), None) or next(iter(lines), None)
    if line is None:
        return "no result yet"
    method = cut(lane_name(line.method))
    if line.flat:
        return f"{method} does not use this setting"
    best = max(line.points, key=lambda p: p.alpha)
    own = next((p for p in line.points if p.at == sweep.own), None)

    def words(point: Point, interval: str = "") -> str:
        at = f"{sweep.symbol} = {sweep.values[point.at]}"
        return f"α {point.alpha:.2f}{interval} with {point.nodes:.0f} nodes at {at}"

    if own is not None and line is own_line and (cheaper := _cheaper(line.points, own)):
        fewer = 100 * (1 - cheaper.nodes / own.nodes)
        return (
            f"{method}: as recorded, {words(own)}. {sweep.symbol} = {sweep.values[cheaper.at]} reaches this α with "
            f"{cheaper.nodes:.0f} nodes, {fewer:.0f}% fewer"
        )
    if own is None or line is not own_line:
        return f"{method}: the best result is {words(best, best.interval)}, but a single text is weak evidence"
    if best.alpha <= own.alpha + 1e-9:
        return f"{method}: the recorded setting has the highest α on this text, {words(own, own.interval)}"
    less, more = best.less, best.more
    if less is None or more is None:
        difference = "the text is too short for an interval"
    else:
        ends = " to ".join(map(signed_decimal, (less, more)))
        difference = (
            f"95% interval of the gain in α: {ends}, {'clear on this text' if less > 0 or more < 0 else 'not clear'}"
        )
    return f"{method}: as recorded, {words(own)}. The best result is {words(best)} ({difference})"
