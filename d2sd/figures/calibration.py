"""Figures of confidence against outcome: by confidence, by position, and by expected gain of a re-draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from d2sd.calibration import Bin, Estimate
from d2sd.calibration.redrafts import GainBin, Second
from d2sd.calibration.scores import Position
from d2sd.calibration.sentences import count
from d2sd.figures.style import (
    COLOURS,
    EDGE,
    FEW,
    INK,
    PANEL,
    Trace,
    axis,
    digits,
    draw,
    fill,
    percent,
    share_axis,
    whiskers,
    with_interval,
)

WIDTH = 0.64  # of a bar, in places
COUNTS = 0.13  # the part of the height that tells how many there are
OPEN_END = 1000.0  # a bin up to more tokens than that has no upper edge


@dataclass(frozen=True, slots=True)
class Column:
    """One place of a column figure: how many there are, what was said (None: not recorded) and what came, with its interval."""

    place: int
    name: str
    count: int
    says: float | None
    gets: Estimate
    words: str


def reliability(bins: Sequence[Bin], kind: str = "first") -> go.Figure:
    """The reliability diagram of these bins of confidence; ``kind``: whose confidence it is, "first" or "second"."""
    edges = [*(b.left for b in bins), 1.0]
    scale: dict[str, Any] = {
        "tickvals": [n - 0.5 for n in range(len(edges))],
        "ticktext": [edge_name(e) for e in edges],
    }
    return _columns(bin_columns(bins), kind, "confidence", range=[-0.5, len(bins) - 0.5], **scale)


def by_position(positions: Sequence[Position]) -> go.Figure:
    """Acceptance at every position of the first draft that was reached."""
    last = max((p.position for p in positions), default=1)
    ends: dict[str, Any] = {"range": [0.5, last + 0.5], "dtick": 1 if last <= 20 else 5}
    return _columns(position_columns(positions), "first", "position in the draft", **ends)


def second_drafter(second: Second) -> go.Figure:
    """The reliability diagram of the second drafter, of re-drafts whose prefix was right."""
    return reliability(second.uniform, "second")


def promise(bins: Sequence[GainBin]) -> go.Figure:
    """Actual against expected gain of re-drafts, in tokens, by bin of expected gain."""
    columns = promise_columns(bins)
    most = max([0.1, *(max(c.says or 0.0, c.gets.value or 0.0, c.gets.high or 0.0) for c in columns)])
    scale: dict[str, Any] = {"tickvals": [c.place for c in columns], "ticktext": [c.name for c in columns]}
    words = ("promised", "gained", "promised")
    ends = [columns[0].place - 0.5, columns[-1].place + 0.5] if columns else [-0.5, 0.5]
    figure = _columns(columns, "second", "tokens promised", words, range=ends, **scale)
    return figure.update_layout(yaxis={"range": [0, most * 1.06], "tickvals": None, "tickformat": ""})


def bin_columns(bins: Sequence[Bin]) -> list[Column]:
    """Returns non-empty bins as columns."""
    named = [(n, b, f"{edge_name(b.left)}–{edge_name(b.right)}") for n, b in enumerate(bins) if b.count]
    return [
        Column(n, name, b.count, b.confidence, Estimate(b.accepted, b.low, b.high), _words(f"Confidence {name}", b))
        for n, b, name in named
    ]


def position_columns(positions: Sequence[Position]) -> list[Column]:
    """Returns positions as columns."""
    return [
        Column(
            p.position,
            f"{p.position}",
            p.count,
            p.confidence,
            Estimate(p.accepted, p.low, p.high),
            _words(f"Position {p.position}", p),
        )
        for p in positions
    ]


def promise_columns(bins: Sequence[GainBin]) -> list[Column]:
    """Returns non-empty bins of expected gain as columns."""
    out = []
    for n, b in enumerate(bins):
        if b.count:
            name = f"{b.left:g} or more" if b.right > OPEN_END else f"{b.left:g}–{b.right:g}"
            gained = with_interval(b.gained, lambda v: digits(v, 2))
            words = f"Promised {name} tokens: {count(b.count, 're-draft')}<br>promised {b.predicted:.2f} and gained {gained} on average"
            out.append(Column(n, name, b.count, b.predicted, b.gained, words))
    return out


def edge_name(edge: float) -> str:
    """Returns a bin edge in few characters."""
    places = 2 if edge in (0, 1) or 0.005 <= edge < 0.995 else 3
    return f"{edge:.{places}f}".rstrip("0").rstrip(".") or "0"


def _words(name: str, b: Bin | Position) -> str:
    few = "<br>too few to say" if b.count < FEW else ""
    between = f"{percent(b.low)} to {percent(b.high)}"
    return f"{name}: {count(b.count, 'position')}<br>says {percent(b.confidence)}, {percent(b.accepted)} accepted ({between}){few}"


def _columns(
    columns: list[Column], kind: str, title: str, words: Sequence[str] = ("says", "accepted", "confident"), **scale: Any
) -> go.Figure:
    """Bars of what happened with their intervals, diamonds of what was said, the gap between them, and counts below.

    ``words``: what the two and a gap are called; ``scale``: options of the axis across.
    """
    said, came, sure = words
    at = [c.place for c in columns]

    def bars(name: str, chosen: list[Column], **options: Any) -> Trace:
        values = [c.gets.value or 0.0 for c in chosen]
        return {
            "type": "bar",
            "width": WIDTH,
            "name": name,
            "x": [c.place for c in chosen],
            "y": values,
            "customdata": [c.place for c in chosen],
            "hovertext": [c.words for c in chosen],
            "hoverinfo": "text",
            **whiskers(values, [c.gets for c in chosen]),
            **options,
        }

    def gap(name: str, colour: str, shape: str, chosen: list[Column]) -> Trace:
        ends = [(c.says or 0.0, c.gets.value or 0.0) for c in chosen]
        pattern = {
            "shape": shape,
            "fgcolor": COLOURS[colour],
            "bgcolor": COLOURS[f"{colour}-tint"],
            "size": 5,
            "solidity": 0.4,
        }
        return {
            "type": "bar",
            "width": WIDTH,
            "name": name,
            "x": [c.place for c in chosen],
            "base": [min(e) for e in ends],
            "y": [max(e) - min(e) for e in ends],
            "marker": {
                "color": COLOURS[colour],
                "opacity": 0.85,
                "pattern": pattern,
                "line": {"color": COLOURS[colour], "width": 1},
            },
            "hoverinfo": "skip",
        }

    many, few = [[c for c in columns if (c.count < FEW) == faint] for faint in (False, True)]
    known = [(c, c.says > (c.gets.value or 0.0)) for c in columns if c.says is not None]
    over, under = [[c for c, sure_of in known if sure_of == side] for side in (True, False)]
    traces = [
        *([bars(came, many, marker=fill(kind))] if many else []),
        *([bars(f"n < {FEW}", few, marker=fill(kind, faint=True))] if few else []),
        gap(f"over-{sure}", "reject", "/", over),
        gap(f"under-{sure}", "target", ".", under),
        {
            "type": "scatter",
            "name": said,
            "x": at,
            "y": [c.says for c in columns],
            "mode": "lines+markers",
            "line": {"color": INK, "width": 1.25, "dash": "dash"},
            "marker": {"symbol": "diamond", "size": 8, "color": PANEL, "line": {"color": INK, "width": 1.5}},
            "hoverinfo": "skip",
        },
        {
            "type": "bar",
            "width": WIDTH,
            "x": at,
            "y": [c.count for c in columns],
            "yaxis": "y2",
            "marker": {"color": EDGE},
            "hoverinfo": "skip",
            "showlegend": False,
        },
    ]
    most = max((c.count for c in columns), default=1)
    below = axis(
        domain=[0, COUNTS],
        tickvals=[most / 2],
        ticktext=[f"n ≤ {most}"],
        showgrid=False,
        range=[0, most * 1.02],
        fixedrange=True,
    )
    return draw(
        traces,
        legend_entrywidth=84,
        xaxis=axis(title, showgrid=False, anchor="y2", **scale),
        yaxis=share_axis(domain=[COUNTS + 0.08, 1]),
        yaxis2=below,
    )
