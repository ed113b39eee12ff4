"""The figure of where two sides differ: prompt groups and positions in the draft."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from d2sd.calibration.comparison import Comparison
from d2sd.calibration.sides import Difference
from d2sd.figures.comparison import COMPARED
from d2sd.figures.style import (
    EDGE,
    INK,
    MUTED,
    PANEL,
    Trace,
    Write,
    axis,
    cut,
    draw,
    percent,
    places_axis,
    safe,
    signed,
    whiskers,
    with_interval,
)

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
