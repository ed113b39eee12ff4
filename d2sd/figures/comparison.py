"""Figures of two sides: their reliability, how often the boundary is among the K likeliest, and what differs.

A is a dashed line with circles, B a solid one with squares.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from d2sd.calibration import Bin, Estimate
from d2sd.calibration.boundaries import Ranks
from d2sd.calibration.comparison import Comparison
from d2sd.calibration.sides import Difference
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
    digits,
    draw,
    percent,
    places_axis,
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
