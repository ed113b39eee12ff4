"""Figures of a server that is watched: α over time, and acceptance by position in the latest reading and before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from statistics import fmean

from d2sd.drawing.panels import Panel, Table
from d2sd.drawing.style import COLOURS, MUTED, Trace, axis, draw, percent, share_axis
from d2sd.trace.logs.totals import Totals


def watched_panels(times: Sequence[datetime], readings: Sequence[Totals]) -> Iterator[Panel]:
    """Yields both figures, as far as the readings tell them.

    times: when each was read.
    readings: those in which something was drafted.
    """
    known = [(t, r.mean_acceptance_length, r) for t, r in zip(times, readings, strict=True) if r.mean_acceptance_length]
    if not known:
        return
    clock = [t.strftime("%H:%M:%S") for t, *_ in known]
    alphas = [alpha for _, alpha, _ in known]
    line: Trace = {
        "type": "scatter",
        "name": "α since the reading before",
        "mode": "lines+markers",
        "x": [t for t, *_ in known],
        "y": alphas,
        "line": {"color": COLOURS["first"], "width": 2},
        "marker": {"size": 6, "color": COLOURS["first"]},
        "hovertext": [f"{at}: α {alpha:.2f}" for at, alpha in zip(clock, alphas, strict=True)],
        "hoverinfo": "text",
    }
    yield Panel(
        "served-alpha",
        "α over time",
        "Tokens a step, the target’s own included, of all requests since the reading before.",
        draw([line], xaxis=axis("time", type="date"), yaxis=axis("α", nticks=6), hovermode="closest", showlegend=False),
        Table(
            ("Time", "α", "Steps"),
            tuple(
                (at, f"{alpha:.2f}", "–" if r.steps is None else f"{r.steps}")
                for at, (_, alpha, r) in zip(clock, known, strict=True)
            ),
        ),
    )
    shares = [r.by_position for _, _, r in known if r.by_position]
    if shares:
        yield _by_position(shares)


def _by_position(shares: Sequence[tuple[float, ...]]) -> Panel:
    *before, latest = shares
    count = len(latest)
    same = [s for s in before if len(s) == count]
    mean = [fmean(s[k] for s in same) for k in range(count)] if same else []
    positions = list(range(1, count + 1))

    def line(name: str, values: Sequence[float], colour: str, dash: str) -> Trace:
        return {
            "type": "scatter",
            "name": name,
            "mode": "lines+markers",
            "x": positions,
            "y": list(values),
            "line": {"color": colour, "width": 2, "dash": dash},
            "marker": {"size": 6, "color": colour},
            "hovertext": [f"{name}: position {k}, {percent(v)}" for k, v in zip(positions, values, strict=True)],
            "hoverinfo": "text",
        }

    lines = [line("latest reading", latest, COLOURS["first"], "solid")]
    if mean:
        lines.append(line("mean of those before", mean, MUTED, "dash"))
    return Panel(
        "served-positions",
        "Acceptance by position",
        "Of all steps, how many accept the drafted token at each position?",
        draw(lines, xaxis=axis("position", dtick=1), yaxis=share_axis(), hovermode="closest"),
        Table(
            ("Position", "Latest", "Before"),
            tuple((f"{k}", percent(latest[k - 1]), percent(mean[k - 1]) if mean else "–") for k in positions),
        ),
    )
