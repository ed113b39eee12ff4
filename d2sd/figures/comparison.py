"""Figures of two sides: their reliability, how often the boundary is among the K likeliest, and what differs.

A is a dashed line with circles, B a solid one with squares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import plotly.graph_objects as go

from d2sd.calibration import Bin, Estimate
from d2sd.calibration.boundaries import Ranks
from d2sd.calibration.comparison import Comparison, Difference
from d2sd.costs.machines import MACHINES
from d2sd.figures.style import (
    COLOURS,
    EDGE,
    FEW,
    INK,
    MUTED,
    PANEL,
    Trace,
    Write,
    axis,
    change,
    cut,
    digits,
    draw,
    percent,
    places_axis,
    safe,
    share_axis,
    signed,
    whiskers,
    with_interval,
)

SIDES = (("A", "first", "dash", "circle"), ("B", "second", "solid", "square"))
DEEPEST = 12


def _number(places: int) -> tuple[Write, Write]:
    """Returns formatters of a value and of a difference, with this many decimals."""
    return lambda v: digits(v, places), lambda v: change(v, places)


# Of every compared figure: its name, what it means, how it and how a difference is written.
COMPARED: dict[str, tuple[str, str, Write, Write]] = {
    "tokens": ("Tokens per step α", "Committed tokens per step, including the one that the target adds.", *_number(2)),
    "speed": (
        "Tokens per second",
        "As the runs were recorded: says something only of runs on one machine.",
        *_number(0),
    ),
    "first": (
        "Accepted of the first draft",
        "Tokens of the first draft that the target accepted, per step with a draft.",
        *_number(2),
    ),
    "hit": (
        "Boundary re-drafted from",
        "Of the steps with a rejected first draft: a re-draft began exactly there.",
        percent,
        signed,
    ),
    "repaired": ("Repaired", "The same, and the re-draft brought a token.", percent, signed),
    "redraft": ("Tokens a re-draft brings", "On average over all re-drafts.", *_number(3)),
    "nodes": ("Nodes per step", "Verified tree nodes, the anchor included.", *_number(1)),
    "gap": ("Accepted − confidence", "Below 0: over-confident. In percentage points.", signed, signed),
    "error": (
        "ECE above chance",
        "How far acceptance is from confidence, less what an honest drafter would show by chance.",
        *_number(3),
    ),
    "brier": ("Brier score", "Mean squared distance between confidence and outcome.", *_number(3)),
}


def reliability_curves(a: Sequence[Bin], b: Sequence[Bin]) -> go.Figure:
    """Reliability curves of both sides; the diagonal is perfect calibration."""
    honest: Trace = {
        "type": "scatter",
        "mode": "lines",
        "x": [0, 1],
        "y": [0, 1],
        "line": {"color": EDGE, "dash": "dot"},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    curves = []
    for side, bins in zip(SIDES, (a, b), strict=True):
        seen = [x for x in bins if x.count]
        words = [f"{side[0]}: says {percent(x.confidence)}, {percent(x.accepted)} of {x.count} accepted" for x in seen]
        figures = [Estimate(x.accepted, x.low, x.high) for x in seen]
        curves.append(_curve(side, [x.confidence for x in seen], figures, words, [x.count < FEW for x in seen]))
    across = axis("confidence", range=[-0.02, 1.02], tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1])
    return draw([honest, *curves], xaxis=across, yaxis=share_axis(), hovermode="closest")


def rank_curves(a: Ranks, b: Ranks) -> go.Figure:
    """How often the true boundary is among the K likeliest, of both sides."""
    depth = min(DEEPEST, max(1, len(a.within), len(b.within)))
    curves = []
    for side, ranks in zip(SIDES, (a, b), strict=True):
        seen = [(n, f) for n, f in enumerate(ranks.within[:depth], 1) if f.value is not None]
        words = [f"{side[0]}: among the {n} likeliest in {with_interval(f)} of {ranks.steps} steps" for n, f in seen]
        curves.append(_curve(side, [float(n) for n, _ in seen], [f for _, f in seen], words, [False] * len(seen)))
    across = axis("K", range=[0.5, depth + 0.5], dtick=1, showgrid=False)
    return draw(curves, xaxis=across, yaxis=share_axis(), hovermode="closest")


def _curve(
    side: tuple[str, str, str, str], x: list[float], figures: list[Estimate], words: list[str], few: list[bool]
) -> Trace:
    name, kind, dash, shape = side
    values = [f.value or 0.0 for f in figures]
    reach = whiskers(values, figures)
    reach["error_y"] |= {"color": COLOURS[kind], "width": 2}
    return {
        "type": "scatter",
        "name": name,
        "mode": "lines+markers",
        "x": x,
        "y": values,
        "line": {"color": COLOURS[kind], "dash": dash, "width": 2},
        "marker": {
            "symbol": shape,
            "size": 8,
            "color": [PANEL if f else COLOURS[kind] for f in few],
            "line": {"color": COLOURS[kind], "width": 1.5},
        },
        "hovertext": words,
        "hoverinfo": "text",
        **reach,
    }


NO_INTERVALS = {
    "text": "Too few steps for intervals: the table has the values.",
    "xref": "paper",
    "yref": "paper",
    "x": 0.5,
    "y": 0.5,
    "showarrow": False,
    "bgcolor": PANEL,
}


def differences(found: Comparison) -> go.Figure:
    """B − A of every figure that has an interval, about 0, each on a scale of its own; clear ones are filled."""
    rows = [d for d in compared_figures(found) if d.difference.low is not None]
    traces = []
    for clear, name in ((True, "clear"), (False, "not clear")):
        chosen = [
            (n, d, max(abs(d.difference.low or 0), abs(d.difference.high or 0), 1e-9))
            for n, d in enumerate(rows)
            if d.clear == clear
        ]
        values = [(d.difference.value or 0.0) / reach for _, d, reach in chosen]
        scaled = [
            Estimate(v, (d.difference.low or 0) / reach, (d.difference.high or 0) / reach)
            for v, (_, d, reach) in zip(values, chosen, strict=True)
        ]
        colour = INK if clear else MUTED
        bars = whiskers(values, scaled, "x")
        bars["error_x"] |= {"color": colour, "thickness": 2 if clear else 1.25, "width": 5}
        traces.append(
            {
                "type": "scatter",
                "name": name,
                "mode": "markers",
                "x": values,
                "y": [n for n, _, _ in chosen],
                "marker": {"size": 8, "color": colour if clear else PANEL, "line": {"color": colour, "width": 1.5}},
                "hovertext": [difference_words(d) for _, d, _ in chosen],
                "hoverinfo": "text",
                **bars,
            }
        )
    zero = {
        "type": "line",
        "x0": 0,
        "x1": 0,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": EDGE, "width": 1.5},
        "layer": "below",
    }
    return draw(
        traces,
        height=120 + 26 * max(1, len(rows)),
        hovermode="closest",
        margin={"l": 30, "r": 12, "t": 28, "b": 60},
        shapes=[zero],
        annotations=[] if rows else [NO_INTERVALS],
        xaxis=axis("A higher ← 0 → B higher", range=[-1.15, 1.15], showticklabels=False, showgrid=False),
        yaxis=places_axis([COMPARED[d.name][0] for d in rows], range=[max(1, len(rows)) - 0.5, -0.5]),
    )


def compared_figures(found: Comparison) -> list[Difference]:
    """The compared figures, in the order in which they are told."""
    by_name = {d.name: d for d in found.figures}
    return [by_name[name] for name in COMPARED if name in by_name]


def difference_words(d: Difference) -> str:
    """Returns a difference as a sentence."""
    name, _, write, change = COMPARED[d.name]
    return f"{name}: {write(d.a.value)} → {write(d.b.value)}<br>B − A {with_interval(d.difference, change)}"


# The figure of where two sides differ: prompt groups and positions in the draft.


ROW = 26  # pixels


def place_name(d: Difference) -> str:
    """What is asked about, in a few words; a group's name is others' text."""
    kind, _, name = d.name.partition(" ")
    return f"α of {cut(name, 24)}" if kind == "group" else f"Token {name} accepted"


def how_written(d: Difference) -> tuple[Write, Write]:
    """How a value and a difference are written."""
    return COMPARED["tokens"][2:] if d.name.startswith("group ") else (percent, signed)


def where(found: Comparison) -> go.Figure:
    """B − A about 0 at every place, groups by tokens per step and positions by share accepted; clear ones are filled.

    Each of the two has an axis of its own, with 0 in its middle.
    """
    parts = [part for part in (found.groups, found.positions) if part]
    rows = [d for part in parts for d in part]
    traces: list[Trace] = []
    for number, part in enumerate(parts):
        first = sum(len(earlier) for earlier in parts[:number])
        known = [(first + n, d) for n, d in enumerate(part) if d.difference.value is not None]
        values = [d.difference.value or 0.0 for _, d in known]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "showlegend": False,
                "x": values,
                "y": [n for n, _ in known],
                "xaxis": "x2" if number else "x",
                "marker": {
                    "size": 8,
                    "color": [INK if d.clear else PANEL for _, d in known],
                    "line": {"color": [INK if d.clear else MUTED for _, d in known], "width": 1.5},
                },
                "hovertext": [_words(d) for _, d in known],
                "hoverinfo": "text",
                **whiskers(values, [d.difference for _, d in known], "x"),
            }
        )
    zero = {"zeroline": True, "zerolinecolor": EDGE, "zerolinewidth": 1.5, "nticks": 5}
    axes = {
        f"xaxis{number + 1 if number else ''}": axis(
            "tokens per step, B − A" if part is found.groups else "share accepted, B − A",
            **zero,
            range=[-_reach(part), _reach(part)],
            **({"tickformat": "+.0%"} if part is found.positions else {"tickformat": "+.2f"}),
            **({"overlaying": "x", "side": "top"} if number else {}),
        )
        for number, part in enumerate(parts)
    }
    return draw(
        traces,
        height=130 + ROW * len(rows),
        hovermode="closest",
        margin={"l": 30, "r": 16, "t": 52 if len(parts) > 1 else 24, "b": 56},
        yaxis=places_axis([safe(place_name(d), 40) for d in rows], range=[len(rows) - 0.5, -0.5]),
        **axes,
    )


def _reach(part: Sequence[Difference]) -> float:
    """How far from 0 the differences and their intervals go, and a little more."""
    ends = [end for d in part for end in (d.difference.value, d.difference.low, d.difference.high) if end is not None]
    return 1.08 * max([1e-9, *map(abs, ends)])


def p_value(p: float) -> str:
    """Returns a p-value as text."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _words(d: Difference) -> str:
    write, change = how_written(d)
    p = "" if d.p is None else f"<br>p {safe(p_value(d.p))}, corrected"
    return f"{safe(place_name(d))}: {write(d.a.value)} → {write(d.b.value)}<br>B − A {with_interval(d.difference, change)}{p}"


# Figures of what-if sweeps: α and verified nodes per step against one setting.


# by tone and dash alone: colours mean drafters
LINES = (
    ("ink", "solid"),
    ("ink", "dash"),
    ("ink", "dot"),
    ("muted", "solid"),
    ("muted", "dashdot"),
    ("muted", "longdash"),
)
NAMED = ("paper", "laptop-cpu")  # machines whose speedup stands beside a point; the table has all
SHAPES = ("square", "circle", "triangle-up", "diamond", "x")


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One answer.

    at: the index of the setting's value.
    alpha: α; low, high: its 95% interval.
    nodes: verified nodes per step.
    less, more: the 95% interval of α minus the recorded run's.
    speedups: over plain decoding by the id of a known machine, calculated.
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
        """Returns the interval of α in brackets, or an empty string."""
        return "" if self.low is None else f" ({self.low:.2f} to {self.high:.2f})"


class Line(msgspec.Struct, frozen=True):
    """The answers of one method; ``flat``: it does not use the setting."""

    method: str
    flat: bool
    points: tuple[Point, ...]


class Sweep(msgspec.Struct, frozen=True):
    """A setting that was varied: its values in order, the index of the recorded run's own, and a line for every method."""

    symbol: str
    label: str
    values: tuple[str, ...]
    own: int | None
    lines: tuple[Line, ...]


class Recorded(msgspec.Struct, frozen=True):
    """The run that was asked, as measured: method, α, verified nodes per step."""

    method: str
    alpha: float
    nodes: float


def looks(sweeps: Sequence[Sweep]) -> dict[str, Trace]:
    """Colour, line pattern and point shape of every method, the same in all sweeps; no two of up to 30 are alike."""
    methods = dict.fromkeys(line.method for sweep in sweeps for line in sweep.lines)
    out = {}
    for n, method in enumerate(methods):
        colour, dash = LINES[n % len(LINES)]
        shape = {"symbol": SHAPES[n % len(SHAPES)], "size": 7, "color": COLOURS[colour]}
        out[method] = {"line": {"color": COLOURS[colour], "dash": dash, "width": 2}, "marker": shape}
    return out


def what_if(sweep: Sweep, recorded: Recorded, looks: dict[str, Trace]) -> go.Figure:
    """α above, nodes per step below, on the same values; a ring marks the recorded run."""
    traces: list[Trace] = []
    for line in sweep.lines:
        words = [point_words(sweep, line, p) for p in line.points]
        alphas = [p.alpha for p in line.points]
        reach: Trace = {} if line.flat else whiskers(alphas, [Estimate(p.alpha, p.low, p.high) for p in line.points])
        if reach:
            reach["error_y"] |= {"color": looks[line.method]["line"]["color"], "width": 0}
        shared: Trace = {
            "type": "scatter",
            "name": safe(line.method),
            "legendgroup": safe(line.method),
            "mode": "lines" if line.flat else "lines+markers",
            "x": [p.at for p in line.points],
            "hovertext": words,
            "hoverinfo": "text",
            **looks[line.method],
        }
        traces.append({**shared, "y": alphas, **reach})
        traces.append({**shared, "y": [p.nodes for p in line.points], "yaxis": "y2", "showlegend": False})
    shapes: list[Trace] = []
    if sweep.own is not None:
        ring: Trace = {
            "type": "scatter",
            "mode": "markers",
            "x": [sweep.own],
            "name": "as recorded",
            "legendgroup": "as recorded",
            "hoverinfo": "skip",
        }
        ring["marker"] = {"symbol": "circle-open", "size": 14, "color": INK, "line": {"width": 1.5}}
        traces += [{**ring, "y": [recorded.alpha]}, {**ring, "y": [recorded.nodes], "yaxis": "y2", "showlegend": False}]
        shapes = [
            {
                "type": "line",
                "x0": sweep.own,
                "x1": sweep.own,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": EDGE, "width": 1.5, "dash": "dash"},
                "layer": "below",
            }
        ]
    title = sweep.symbol if sweep.own is None else f"{sweep.symbol} (recorded: {sweep.values[sweep.own]})"
    return draw(
        traces,
        height=340,
        hovermode="closest",
        margin={"l": 42, "r": 12, "t": 28, "b": 96},
        shapes=shapes,
        xaxis=places_axis(list(sweep.values), title, anchor="y2"),
        yaxis=axis("α", domain=[0.42, 1], nticks=6),
        yaxis2=axis("nodes", domain=[0, 0.34], rangemode="tozero", nticks=4),
    )


def point_words(sweep: Sweep, line: Line, point: Point) -> str:
    """Returns an answer as a sentence."""
    value = f"{sweep.symbol} not used" if line.flat else f"{sweep.symbol} = {sweep.values[point.at]}"
    there = "".join(f"<br>8B on {MACHINES[m].name}: {point.speedups[m]:.2f}×" for m in NAMED if m in point.speedups)
    return f"{safe(line.method)}, {value}<br>α {point.alpha:.2f}{point.interval}, {point.nodes:.1f} nodes a step{there}"


def _cheaper(points: Sequence[Point], own: Point) -> Point | None:
    """The point of the fewest nodes whose α is, as written, no lower than ``own``; None where it saves less than a tenth."""
    equal = [p for p in points if round(p.alpha, 2) >= round(own.alpha, 2)]
    least = min(equal, key=lambda p: p.nodes, default=own)
    return least if least.nodes < 0.9 * own.nodes else None


def sweep_reading(sweep: Sweep, recorded: Recorded) -> str:
    """Returns a sentence about the recorded method in a sweep."""
    lines = [line for line in sweep.lines if line.points]
    own_line = next((line for line in lines if line.method == recorded.method), None)
    line = own_line or next((line for line in lines if not line.flat), None) or next(iter(lines), None)
    if line is None:
        return "no answer yet"
    method = cut(line.method)
    if line.flat:
        return f"{method} does not use it"
    best = max(line.points, key=lambda p: p.alpha)
    own = next((p for p in line.points if p.at == sweep.own), None)

    def words(point: Point) -> str:
        return f"α {point.alpha:.2f} with {point.nodes:.0f} nodes at {sweep.symbol} = {sweep.values[point.at]}"

    if own is not None and line is own_line and (cheaper := _cheaper(line.points, own)):
        fewer = 100 * (1 - cheaper.nodes / own.nodes)
        return (
            f"{method}: {words(own)} as recorded; {sweep.symbol} = {sweep.values[cheaper.at]} has the same α with "
            f"{cheaper.nodes:.0f} nodes, {fewer:.0f}% fewer"
        )
    if own is None or line is not own_line:
        return f"{method}: highest {words(best)}{best.interval}; one text says little"
    if best.alpha <= own.alpha + 1e-9:
        return f"{method}: {words(own)}{own.interval} as recorded is the highest on this text"
    less, more = best.less, best.more
    if less is None or more is None:
        difference = "too short a text for an interval"
    else:
        ends = " to ".join(f"{'−' if v < 0 else '+'}{abs(v):.2f}" for v in (less, more))
        difference = f"{ends}, {'clearly more on this text' if less > 0 or more < 0 else 'no clear difference'}"
    return f"{method}: {words(own)} as recorded; highest {words(best)} ({difference})"
