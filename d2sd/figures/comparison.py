"""The results of a comparison as the page and the reports show them, and its figures: what differs, reliability of both sides, and
how often the boundary is among the K likeliest.

A is a dashed line with circles, B a solid one with squares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

import plotly.graph_objects as go

from d2sd.calibration import Estimate, Gathering
from d2sd.calibration.comparison import Comparison, Curves, Difference
from d2sd.calibration.report import compare_gathered
from d2sd.calibration.sentences import COMPARED, how_compared, percent, read_comparison, with_interval
from d2sd.figures.style import (
    COLOURS,
    EDGE,
    FEW,
    INK,
    MUTED,
    PANEL,
    ROW,
    Panel,
    Table,
    Trace,
    axis,
    draw,
    places_axis,
    scatter,
    share_axis,
    values_of,
    vertical,
    whiskers,
)
from d2sd.methods import unused
from d2sd.trace.metrics import what_differs

SIDES = (("A", "muted", "dash", "circle"), ("B", "ink", "solid", "square"))
DEEPEST = 12


@dataclass(frozen=True, slots=True)
class ComparisonResults:
    """What the page and the reports show of two sets of runs.

    reading: what differs in their settings, then sentences about the figures.
    how: a sentence about the intervals.
    """

    comparison: Comparison
    reading: tuple[str, ...]
    how: str
    panels: tuple[Panel, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "comparison": asdict(self.comparison),
            "how": self.how,
            "reading": self.reading,
            "panels": [panel.to_dict() for panel in self.panels],
        }


def comparison_results(a: Gathering, b: Gathering) -> ComparisonResults:
    found = compare_gathered(a, b)
    return ComparisonResults(
        found,
        (what_differs(a.headers, b.headers, unused), *read_comparison(found)),
        how_compared(found),
        tuple(comparison_panels(found)),
    )


def comparison_panels(found: Comparison) -> Iterator[Panel]:
    """Yields the differences between two sides, and the curves of both."""
    yield Panel(
        "differences",
        "B − A",
        "Every difference with its interval, each on a separate scale. It is clear if the interval excludes 0.",
        differences(found),
        _differences(found.figures),
    )
    yield Panel(
        "both-reliability",
        "Reliability, both",
        "Of the tokens drafted with this confidence, how many does the target accept? On the diagonal the confidence is honest.",
        reliability_curves(found.curves),
        _reliability(found.curves),
    )
    yield Panel(
        "both-ranks",
        "Boundary, both",
        "How often is the true boundary among the K likeliest?",
        rank_curves(found.curves),
        _ranks(found.curves),
    )


def _reliability(curves: Sequence[Curves]) -> Table:
    rows = []
    for bins in zip(*(c.uniform for c in curves), strict=True):
        if any(b.count for b in bins):
            shares = [with_interval(Estimate(b.accepted, b.low, b.high)) if b.count else "—" for b in bins]
            rows.append((f"{bins[0].left:.1f}–{bins[0].right:.1f}", *(f"{b.count}" for b in bins), *shares))
    return Table(("Confidence", "n of A", "n of B", "A accepted (95%)", "B accepted (95%)"), tuple(rows))


def _ranks(curves: Sequence[Curves]) -> Table:
    shares = zip_longest(*(c.ranks.within for c in curves), fillvalue=Estimate(None))
    rows = tuple((f"{k}", *map(with_interval, both)) for k, both in enumerate(shares, 1))
    return Table(("K", *(f"{side[0]} (95%), n = {c.ranks.steps}" for side, c in zip(SIDES, curves, strict=True))), rows)


def _differences(rows: Sequence[Difference]) -> Table:
    cells = []
    for d in rows:
        name, write, change = COMPARED[d.name]
        says = "" if d.difference.low is None else "clear" if d.difference.excludes_zero else "not clear"
        sides = (with_interval(d.a, write), with_interval(d.b, write))
        cells.append((name, f"{d.count_a}", f"{d.count_b}", *sides, with_interval(d.difference, change), says))
    return Table(("", "n of A", "n of B", "A", "B", "B − A (95% for all)", ""), tuple(cells))


def reliability_curves(sides: Sequence[Curves]) -> go.Figure:
    """Reliability curves of both sides; the diagonal is perfect calibration."""
    honest = scatter("lines", [0, 1], [0, 1], line={"color": EDGE, "dash": "dot"}, showlegend=False)
    curves = []
    for side, own in zip(SIDES, sides, strict=True):
        seen = [x for x in own.uniform if x.count]
        words = [f"{side[0]}: says {percent(x.confidence)}, {percent(x.accepted)} of {x.count} accepted" for x in seen]
        figures = [Estimate(x.accepted, x.low, x.high) for x in seen]
        curves.append(_curve(side, [x.confidence for x in seen], figures, words, [x.count < FEW for x in seen]))
    across = axis("confidence", range=[-0.02, 1.02], tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1])
    return draw([honest, *curves], xaxis=across, yaxis=share_axis())


def rank_curves(sides: Sequence[Curves]) -> go.Figure:
    """How often the true boundary is among the K likeliest, of both sides."""
    depth = min(DEEPEST, max(1, *(len(own.ranks.within) for own in sides)))
    curves = []
    for side, own in zip(SIDES, sides, strict=True):
        seen = [(n, f) for n, f in enumerate(own.ranks.within[:depth], 1) if f.value is not None]
        words = [
            f"{side[0]}: among the {n} likeliest in {with_interval(f)} of {own.ranks.steps} steps" for n, f in seen
        ]
        curves.append(_curve(side, [float(n) for n, _ in seen], [f for _, f in seen], words, [False] * len(seen)))
    across = axis("K", range=[0.5, depth + 0.5], dtick=1, showgrid=False)
    return draw(curves, xaxis=across, yaxis=share_axis())


def _curve(
    side: tuple[str, str, str, str], x: list[float], figures: list[Estimate], words: list[str], few: list[bool]
) -> Trace:
    name, kind, dash, shape = side
    colour = COLOURS[kind]
    fills = [PANEL if f else colour for f in few]
    return scatter(
        "lines+markers",
        x,
        values_of(figures),
        words,
        name=name,
        line={"color": colour, "dash": dash, "width": 2},
        marker={"symbol": shape, "size": 8, "color": fills, "line": {"color": colour, "width": 1.5}},
        **whiskers(figures, color=colour, width=2),
    )


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
    rows = [d for d in found.figures if d.difference.low is not None]
    traces = []
    for clear, name in ((True, "clear"), (False, "not clear")):
        chosen = [(n, d) for n, d in enumerate(rows) if d.difference.excludes_zero == clear]
        scaled = [_scaled(d.difference) for _, d in chosen]
        colour = INK if clear else MUTED
        traces.append(
            scatter(
                "markers",
                values_of(scaled),
                [n for n, _ in chosen],
                [difference_words(d) for _, d in chosen],
                name=name,
                marker={"size": 8, "color": colour if clear else PANEL, "line": {"color": colour, "width": 1.5}},
                **whiskers(scaled, "x", color=colour, thickness=2 if clear else 1.25, width=5),
            )
        )
    return draw(
        traces,
        height=120 + ROW * max(1, len(rows)),
        margin={"l": 30, "r": 12, "t": 28, "b": 60},
        shapes=[vertical(0, EDGE, layer="below")],
        annotations=[] if rows else [NO_INTERVALS],
        xaxis=axis("A higher ← 0 → B higher", range=[-1.15, 1.15], showticklabels=False, showgrid=False),
        yaxis=places_axis([COMPARED[d.name][0] for d in rows], range=[max(1, len(rows)) - 0.5, -0.5]),
    )


def _scaled(figure: Estimate) -> Estimate:
    """Returns a difference whose interval reaches 1 at its farther end from 0."""
    value, low, high = (end or 0.0 for end in (figure.value, figure.low, figure.high))
    reach = max(abs(low), abs(high), 1e-9)
    return Estimate(value / reach, low / reach, high / reach)


def difference_words(d: Difference) -> str:
    name, write, change = COMPARED[d.name]
    return f"{name}: {write(d.a.value)} → {write(d.b.value)}<br>B − A {with_interval(d.difference, change)}"
