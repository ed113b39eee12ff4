"""Figures of a report: gain and cost of drafts, confidence by group, and the effect of another softmax temperature."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from d2sd.calibration import Estimate, Report
from d2sd.calibration.alternatives import TemperatureAdvice
from d2sd.calibration.boundaries import OTHER, Gain, Gains
from d2sd.calibration.scores import Group
from d2sd.calibration.sentences import count, digits, hundredths, percent, signed, temperature_words, with_interval
from d2sd.figures.style import (
    BAR,
    EDGE,
    FEW,
    FINE,
    INK,
    PANEL,
    ROW,
    Cell,
    Panel,
    Table,
    Trace,
    axis,
    bars,
    cut,
    draw,
    fill,
    places_axis,
    safe,
    share_axis,
    whiskers,
)


def gains_panel(report: Report) -> Panel:
    """Returns tokens gained and nodes spent by each source."""
    gains = report.gains
    rows: list[tuple[Cell, ...]] = []
    names = {}
    for g in gains.sources:
        place = OTHER if g.branch is None else g.branch
        name = source_name(g)
        names[place] = f"{name[:1].upper()}{name[1:]} brought tokens"
        won: Cell = (count(g.won, "step"), place) if g.won else "no step"
        rows.append((name, with_interval(g.tokens, hundredths), f"{g.nodes:.1f}", percent(g.wasted), won))
    rows.append(("the target’s own token", hundredths(gains.bonus), "—", "—", "—"))
    rows.append(
        (
            "together (α)",
            with_interval(gains.tokens_per_step, hundredths),
            f"{gains.nodes_per_step:.1f}",
            percent(gains.wasted),
            "",
        )
    )
    return Panel(
        "gains",
        "Tokens gained, nodes spent",
        "A re-draft counts only the tokens that earlier drafts do not contain. A node is wasted if the target does not accept it.",
        tokens_gained(gains),
        Table(("Source", "Tokens gained", "Nodes, anchor aside", "Wasted", "Brought tokens in"), tuple(rows)),
        names,
    )


def tokens_gained(gains: Gains) -> go.Figure:
    """Tokens and verified nodes per step by who brought them, one row a draft; the target's own token comes last."""
    names = [source_name(g) for g in gains.sources]
    last = len(gains.sources)
    kinds = ["first" if g.branch == 0 else "second" for g in gains.sources]

    def tokens(kind: str, name: str) -> Trace:
        rows = [n for n, k in enumerate(kinds) if k == kind]
        sources = [gains.sources[n] for n in rows]
        values = [g.tokens.value or 0.0 for g in sources]
        marks = [OTHER if g.branch is None else g.branch for g in sources]
        options = {"width": BAR, "customdata": marks, **whiskers(values, [g.tokens for g in sources], "x")}
        return bars(name, rows, values, fill(kind), list(map(gain_words, sources)), across=True, **options)

    words = [f"The target’s own token: {gains.bonus:.2f} a step"]
    bonus = bars("target", [last], [gains.bonus], fill("target"), words, across=True)
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
    traces = [
        *(tokens(k, n) for k, n in (("first", "first draft"), ("second", "re-drafts")) if k in kinds),
        bonus,
        nodes,
    ]
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


def groups_panel(id: str, title: str, groups: Sequence[Group], places: Sequence[int]) -> Panel:
    """Returns the first drafter's confidence by group.

    id: "domain" or "kind".
    places: the mark of each group.
    """
    rows: list[tuple[Cell, ...]] = []
    for place, g in zip(places, groups, strict=True):
        positions: Cell = (f"{g.positions}", place)
        of_steps = (
            with_interval(g.tokens, hundredths) if g.tokens else "—",
            with_interval(g.repaired) if g.repaired else "—",
        )
        gap = with_interval(g.gap, signed)
        rows.append(
            (cut(g.name), positions, percent(g.confidence), percent(g.accepted), gap, digits(g.error), *of_steps)
        )
    before = "Prompts of" if id == "domain" else "Kind of token:"
    return Panel(
        id,
        title,
        "Where is the first drafter’s confidence off?",
        by_group(groups, places),
        Table(("Group", "Positions", "Says", "Accepted", "Gap (95% interval)", "ECE", "α", "Repaired"), tuple(rows)),
        {place: f"{before} {cut(g.name)}" for place, g in zip(places, groups, strict=True)},
    )


def source_name(gain: Gain) -> str:
    """Returns the name of a source of tokens."""
    if gain.branch is None:
        return "lower ranks"
    return f"re-draft {gain.branch}" if gain.branch else "first draft"


def gain_words(gain: Gain) -> str:
    """Returns gain and cost of a source as a sentence."""
    tokens = with_interval(gain.tokens, hundredths)
    name = source_name(gain)
    return f"{name[:1].upper()}{name[1:]}: {tokens} tokens a step, in {count(gain.won, 'step')}<br>{gain.nodes:.1f} nodes a step, {percent(gain.wasted)} wasted"


def by_group(groups: Sequence[Group], places: Sequence[int]) -> go.Figure:
    """Confidence against acceptance of the first drafter, one row per group; ``places``: the number of each group."""
    known = [(n, g) for n, g in enumerate(groups) if g.confidence is not None and g.accepted is not None]

    def accepted(name: str, faint: bool) -> Trace:
        shown = [(n, g) for n, g in known if (g.positions < FEW) == faint]
        values = [g.accepted or 0.0 for _, g in shown]
        options = {
            "width": BAR,
            "customdata": [places[n] for n, _ in shown],
            **whiskers(values, [_shifted(g.gap, g.confidence or 0.0) for _, g in shown], "x"),
        }
        words = [group_words(g) for _, g in shown]
        return bars(name, [n for n, _ in shown], values, fill("first", faint), words, across=True, **options)

    says: Trace = {
        "type": "scatter",
        "name": "says",
        "x": [g.confidence for _, g in known],
        "y": [n for n, _ in known],
        "mode": "markers",
        "marker": {"symbol": "diamond", "size": 9, "color": PANEL, "line": {"color": INK, "width": 1.5}},
        "hoverinfo": "skip",
    }
    traces = [accepted(n, faint) for n, faint in (("accepted", False), (f"n < {FEW}", True))]
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


def _shifted(figure: Estimate, by: float) -> Estimate:
    """Returns a figure and its interval, shifted."""
    ends = (None if end is None else end + by for end in (figure.value, figure.low, figure.high))
    return Estimate(*ends)


def temperature_panel(report: Report) -> Panel:
    """Returns the effect of the advised temperature, which the report must have."""
    advice = report.advice
    assert advice is not None
    steps: Cell = (f"{len(advice.rows)} of {advice.steps}", 0) if advice.rows else f"0 of {advice.steps}"
    rows: tuple[tuple[Cell, ...], ...] = (
        ("ECE", digits(advice.error_before), digits(advice.error_after)),
        ("Boundary hits", percent(advice.hits_before), percent(advice.hits_after)),
        ("ECE lower by", with_interval(advice.improvement, digits), ""),
        ("Prefixes replaced", percent(advice.moved), ""),
        ("Steps with other prefixes", steps, ""),
        ("Positions fitted, judged", f"{advice.fitted_positions}", f"{advice.judged_positions}"),
    )
    return Panel(
        "moved",
        "Softmax temperature",
        f"{advice_words(advice)} T divides the drafter’s logits; fitted on one half, judged on the other, halves by {report.unit}.",
        temperature(advice),
        Table(("", "As it is", "With T"), rows),
        {0: "Other prefixes with the temperature"},
    )


def temperature(advice: TemperatureAdvice) -> go.Figure:
    """Calibration error and boundary hits of the judged half, as they are and with the suggested temperature."""
    hits = (advice.hits_before, advice.hits_after)
    rows = [
        ("ECE", (advice.error_before, advice.error_after)),
        *([("boundary hits", hits)] if None not in hits else []),
    ]

    def both(name: str, which: int, faint: bool) -> Trace:
        shown = [digits(v[which]) if n == "ECE" else percent(v[which]) for n, v in rows]
        options = {
            "text": [f" {value}" for value in shown],
            "textposition": "outside",
            "cliponaxis": False,
            "customdata": [0 if advice.rows else None] * len(rows),
        }
        words = [f"{n}, {name}: {value}" for (n, _), value in zip(rows, shown, strict=True)]
        values = [v[which] or 0.0 for _, v in rows]
        return bars(name, list(range(len(rows))), values, fill("first", faint), words, across=True, **options)

    return draw(
        [both("as it is", 0, True), both(f"with T = {temperature_words(advice.temperature)}", 1, False)],
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
