"""Figures of the gain and cost of drafts, by group of prompts and tokens, and of a better softmax temperature."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from d2sd.calibration import Estimate
from d2sd.calibration.gains import Gain, Gains
from d2sd.calibration.sentences import count, temperature_words
from d2sd.calibration.splits import Group
from d2sd.calibration.temperature import TemperatureAdvice
from d2sd.figures.style import (
    EDGE,
    FEW,
    FINE,
    INK,
    PANEL,
    Trace,
    axis,
    digits,
    draw,
    fill,
    percent,
    places_axis,
    safe,
    share_axis,
    signed,
    whiskers,
    with_interval,
)

ROW = 26  # pixels
OTHER = -1  # the place of what lower-ranked choices brought


def tokens_gained(gains: Gains) -> go.Figure:
    """Tokens and verified nodes per step by who brought them, one row a draft; the target's own token comes last."""
    names = [source_name(g) for g in gains.sources]
    last = len(gains.sources)
    kinds = ["first" if g.branch == 0 else "second" for g in gains.sources]

    def bars(kind: str, name: str) -> Trace:
        rows = [n for n, k in enumerate(kinds) if k == kind]
        values = [gains.sources[n].tokens.value or 0.0 for n in rows]
        return {
            "type": "bar",
            "width": 0.64,
            "orientation": "h",
            "name": name,
            "x": values,
            "y": rows,
            "marker": fill(kind),
            "customdata": [OTHER if gains.sources[n].branch is None else gains.sources[n].branch for n in rows],
            "hovertext": [gain_words(gains.sources[n]) for n in rows],
            "hoverinfo": "text",
            **whiskers(values, [gains.sources[n].tokens for n in rows], "x"),
        }

    bonus: Trace = {
        "type": "bar",
        "orientation": "h",
        "name": "target",
        "x": [gains.bonus],
        "y": [last],
        "marker": fill("target"),
        "hovertext": [f"The target’s own token: {gains.bonus:.2f} a step"],
        "hoverinfo": "text",
    }
    nodes: Trace = {
        "type": "bar",
        "orientation": "h",
        "name": "nodes",
        "x": [g.nodes for g in gains.sources],
        "y": list(range(last)),
        "xaxis": "x2",
        "marker": {"color": EDGE},
        "text": [f" {g.nodes:.1f}, {percent(g.wasted)}" for g in gains.sources],
        "textposition": "outside",
        "textfont": FINE,
        "cliponaxis": False,
        "hoverinfo": "skip",
        "showlegend": False,
    }
    most = max([0.1, *(g.nodes for g in gains.sources)])
    traces = [*(bars(k, n) for k, n in (("first", "first draft"), ("second", "re-drafts")) if k in kinds), bonus, nodes]
    return draw(
        traces,
        height=130 + ROW * (last + 1),
        hovermode="closest",
        margin={"l": 30, "r": 12, "t": 28, "b": 74},
        xaxis=axis("tokens a step", domain=[0, 0.52], rangemode="tozero"),
        xaxis2=axis(
            "nodes a step, share wasted", domain=[0.58, 1], anchor="y", range=[0, most * 1.9], showgrid=False, nticks=4
        ),
        yaxis=places_axis([*names, "target’s own"], range=[last + 0.5, -0.5]),
    )


def source_name(gain: Gain) -> str:
    """Returns the name of a source of tokens."""
    if gain.branch is None:
        return "lower ranks"
    return f"re-draft {gain.branch}" if gain.branch else "first draft"


def gain_words(gain: Gain) -> str:
    """Returns gain and cost of a source as a sentence."""
    tokens = with_interval(gain.tokens, lambda v: digits(v, 2))
    name = source_name(gain)
    return f"{name[:1].upper()}{name[1:]}: {tokens} tokens a step, in {count(gain.won, 'step')}<br>{gain.nodes:.1f} nodes a step, {percent(gain.wasted)} wasted"


def by_group(groups: Sequence[Group], places: Sequence[int]) -> go.Figure:
    """Confidence against acceptance of the first drafter, one row per group; ``places``: the number of each group."""
    known = [(n, g) for n, g in enumerate(groups) if g.confidence is not None and g.accepted is not None]

    def bars(name: str, faint: bool) -> Trace:
        chosen = [(n, g) for n, g in known if (g.positions < FEW) == faint]
        values = [g.accepted or 0.0 for _, g in chosen]
        reach = [_moved(g.gap, g.confidence or 0.0) for _, g in chosen]
        return {
            "type": "bar",
            "width": 0.64,
            "orientation": "h",
            "name": name,
            "x": values,
            "y": [n for n, _ in chosen],
            "marker": fill("first", faint),
            "customdata": [places[n] for n, _ in chosen],
            "hovertext": [group_words(g) for _, g in chosen],
            "hoverinfo": "text",
            **whiskers(values, reach, "x"),
        }

    says: Trace = {
        "type": "scatter",
        "name": "says",
        "x": [g.confidence for _, g in known],
        "y": [n for n, _ in known],
        "mode": "markers",
        "marker": {"symbol": "diamond", "size": 9, "color": PANEL, "line": {"color": INK, "width": 1.5}},
        "hoverinfo": "skip",
    }
    traces = [bars(n, faint) for n, faint in (("accepted", False), (f"n < {FEW}", True))]
    return draw(
        [*(t for t in traces if t["y"]), says],
        height=120 + ROW * max(1, len(groups)),
        hovermode="closest",
        margin={"l": 30, "r": 16, "t": 28, "b": 56},
        xaxis=share_axis(),
        yaxis=places_axis([safe(g.name, 24) for g in groups], range=[len(groups) - 0.5, -0.5]),
    )


def group_words(group: Group) -> str:
    """Returns the figures of a group as a sentence."""
    few = "<br>too few to say" if group.positions < FEW else ""
    gap = with_interval(group.gap, signed)
    return f"{safe(group.name)}: {count(group.positions, 'position')}<br>says {percent(group.confidence)}, {percent(group.accepted)} accepted, gap {gap} points{few}"


def _moved(figure: Estimate, by: float) -> Estimate:
    """Returns a figure and its interval, shifted."""
    ends = (None if end is None else end + by for end in (figure.value, figure.low, figure.high))
    return Estimate(*ends)


def temperature(advice: TemperatureAdvice) -> go.Figure:
    """Calibration error and boundary hits of the judged half, as they are and with the suggested temperature."""
    hits = (advice.hits_before, advice.hits_after)
    rows = [
        ("ECE", (advice.error_before, advice.error_after)),
        *([("boundary hits", hits)] if None not in hits else []),
    ]

    def bars(name: str, which: int, faint: bool) -> Trace:
        return {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": [values[which] for _, values in rows],
            "y": list(range(len(rows))),
            "marker": fill("first", faint),
            "text": [f" {digits(v[which])}" if n == "ECE" else f" {percent(v[which])}" for n, v in rows],
            "textposition": "outside",
            "cliponaxis": False,
            "customdata": [0 if advice.rows else None] * len(rows),
            "hovertext": [f"{n}, {name}: {digits(v[which]) if n == 'ECE' else percent(v[which])}" for n, v in rows],
            "hoverinfo": "text",
        }

    return draw(
        [bars("as it is", 0, True), bars(f"with T = {temperature_words(advice.temperature)}", 1, False)],
        height=110 + 56 * len(rows),
        barmode="group",
        hovermode="closest",
        margin={"l": 30, "r": 40, "t": 28, "b": 56},
        xaxis=share_axis(),
        yaxis=places_axis([n for n, _ in rows], range=[len(rows) - 0.5, -0.5]),
    )


def advice_words(advice: TemperatureAdvice) -> str:
    """Returns the effect of the temperature in a sentence or two."""
    better, low = advice.improvement.value or 0.0, advice.improvement.low
    if low is None or low <= 0:
        verdict = "no clear improvement"
    else:
        verdict = "the drafter should be less sure" if advice.temperature > 1 else "the drafter may be surer"
    size = f"ECE {'higher' if better < 0 else 'lower'} by {digits(abs(better))}"
    moved = "" if advice.moved is None else f" It would replace {percent(advice.moved)} of the prefixes."
    return f"T = {temperature_words(advice.temperature)}: {verdict}, {size}.{moved}"
