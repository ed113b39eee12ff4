"""Figures of a report: predicted and actual rejection boundaries, tokens and nodes by draft, and confidence by prompt group."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import plotly.graph_objects as go

from d2sd.calibration import Estimate, Report
from d2sd.calibration.boundaries import Gain, Gains, Matrix, Ranks
from d2sd.calibration.scores import Group
from d2sd.calibration.sentences import count, decimal, digits, percent, signed, with_interval
from d2sd.calibration.steps import OTHER
from d2sd.figures.style import (
    BAR,
    COLOURS,
    EDGE,
    FEW,
    FINE,
    HEIGHT,
    INK,
    MUTED,
    PANEL,
    ROW,
    Cell,
    FigureTable,
    Panel,
    Trace,
    axis,
    bars,
    cut,
    draw,
    fill,
    places_axis,
    safe,
    scatter,
    share_axis,
    values_of,
    vertical,
    whiskers,
)

LEAST_OUTCOMES = 6
MANY_OUTCOMES = 10
LEAST_RANKS = 8
FRAME = {"x0": -0.46, "x1": 0.46, "y0": -0.46, "y1": 0.46}  # border of a diagonal cell, relative to the cell's centre


def matrix_panel(report: Report) -> Panel:
    matrix, size = report.matrix, len(report.matrix.counts)
    shown = outcomes(matrix)
    names = {
        a * size + p: f"Predicted {outcome_name(matrix, p)}, actual {outcome_name(matrix, a)}"
        for a in shown
        for p in shown
    }
    rows: list[tuple[Cell, ...]] = [
        (outcome_name(matrix, a), *((f"{n}", a * size + p) if (n := matrix.counts[a][p]) else "" for p in shown))
        for a in shown
    ]
    return Panel(
        "matrix",
        "Boundary: predicted and actual",
        "How many tokens of the first draft were predicted to be accepted, and how many were? On the diagonal, the prediction was right.",
        boundary_matrix(matrix),
        FigureTable(("Actual \\ predicted", *(outcome_name(matrix, p) for p in shown)), tuple(rows)),
        names,
    )


def boundary_matrix(matrix: Matrix) -> go.Figure:
    shown, size = outcomes(matrix), len(matrix.counts)
    names = [outcome_name(matrix, i) for i in shown]
    counts = [[matrix.counts[a][p] for p in shown] for a in shown]
    most = max(1, *chain.from_iterable(counts)) if shown else 1
    words = [
        [f"Predicted {p}, actual {a}: {count(n, 'step')}" for p, n in zip(names, row, strict=True)]
        for a, row in zip(names, counts, strict=True)
    ]
    places = list(range(len(shown)))
    cells: Trace = {
        "type": "heatmap",
        "x": places,
        "y": places,
        "z": [[(n / most) ** 0.5 if n else None for n in row] for row in counts],
        "zmin": 0,
        "zmax": 2,  # the darkest cell has the middle colour, on which the numbers are readable in both themes
        "colorscale": [[0, COLOURS["first-tint"]], [1, COLOURS["first"]]],
        "showscale": False,
        "xgap": 1.5,
        "ygap": 1.5,
        "text": [[f"{n}" if n else "" for n in row] for row in counts],
        "texttemplate": "%{text}",
        "textfont": {"size": 10, "color": INK},
        "customdata": [[a * size + p for p in shown] for a in shown],
        "hovertext": words,
        "hoverinfo": "text",
    }
    frame = {"type": "rect", "line": {"color": MUTED, "width": 1}}
    right = [{**frame, **{end: n + by for end, by in FRAME.items()}} for n in places]
    # every second label if there are many, and the last
    labels = [
        name if len(names) < MANY_OUTCOMES or (n % 2 == 0 and n < len(names) - 2) or n == places[-1] else ""
        for n, name in enumerate(names)
    ]
    square = places_axis(labels, "predicted", side="top", tickangle=0)
    down = places_axis(labels, "actual", range=[len(shown) - 0.5, -0.5])
    return draw(
        [cells],
        height=max(HEIGHT, 84 + 22 * len(shown)),
        margin={"l": 44, "r": 12, "t": 60, "b": 12},
        plot_bgcolor=COLOURS["sunken"],
        shapes=right,
        xaxis=square,
        yaxis=down,
    )


def outcomes(matrix: Matrix) -> list[int]:
    """Returns the outcomes to draw, as numbers of accepted tokens: at least ``LEAST_OUTCOMES`` outcomes from 0, and all up to the
    largest that was predicted or happened. Full acceptance is included only if it was predicted or happened.
    """
    whole = len(matrix.counts) - 1
    used = [i for i in range(whole + 1) if any(matrix.counts[i]) or any(row[i] for row in matrix.counts)]
    last = max([min(whole, LEAST_OUTCOMES) - 1, *(i for i in used if i < whole)])
    return [*range(last + 1), *([whole] if whole > 0 and whole in used else [])]


def outcome_name(matrix: Matrix, outcome: int) -> str:
    return "all" if outcome == len(matrix.counts) - 1 else f"{outcome}"


def ranks_panel(report: Report) -> Panel:
    ranks = report.ranks
    rows = tuple(
        (
            f"{n}",
            (f"{steps}", n - 1) if steps else "0",
            percent(steps / ranks.steps) if ranks.steps else "—",
            with_interval(ranks.within[n - 1]),
            percent(ranks.chance[n - 1]),
        )
        for n, steps in enumerate(shown_ranks(ranks), 1)
    )
    return Panel(
        "ranks",
        "Rank of the true boundary",
        "Bars: how often the true boundary was the likeliest, the second likeliest, … Line: how often it was among the K likeliest.",
        boundary_ranks(ranks),
        FigureTable(("Rank = K", "Steps", "Share", "Among the K likeliest", "At random"), rows),
        {n: f"True boundary ranked {n + 1}" for n in range(len(rows))},
    )


def boundary_ranks(ranks: Ranks) -> go.Figure:
    """Draws how often the true boundary has each rank, as bars, and how often it is among the K likeliest, as a line."""
    counts, steps = shown_ranks(ranks), max(1, ranks.steps)
    at, used = list(range(1, len(counts) + 1)), used_branches(ranks)
    within = ranks.within[: len(counts)]
    hits = values_of(within)

    def words(n: int) -> str:
        among = f"<br>among the {n} likeliest in {with_interval(ranks.within[n - 1])}; among {n} random prefixes in {percent(ranks.chance[n - 1])}"
        return f"True boundary ranked {n}: {count(counts[n - 1], 'step')} of {ranks.steps}{among}"

    def ranked(name: str, kind: str, shown: list[int]) -> Trace:
        shares = [counts[n - 1] / steps for n in shown]
        marks = [n - 1 for n in shown]
        hovers = [words(n) for n in shown]
        return bars(shown, shares, fill(kind), hovers, name=name, width=BAR, customdata=marks)

    traces: list[Trace] = [
        *([ranked("re-drafted from", "second", at[:used])] if used else []),
        ranked("this rank", "first", at[used or 0 :]),
        scatter(
            "lines+markers",
            at[: len(hits)],
            hits,
            name="among K likeliest",
            line={"color": INK, "width": 1.75},
            marker={"size": 6, "color": INK},
            **whiskers(within),
        ),
        scatter(
            "lines",
            at[: len(hits)],
            ranks.chance[: len(hits)],
            name="K at random",
            line={"color": MUTED, "width": 1.5, "dash": "dot"},
        ),
    ]
    flag: dict[str, Any] = {}
    if used and used <= len(hits) and ranks.steps:
        line = vertical(used + 0.5, INK, "dash")
        label = {
            "text": f"K = {used}: {percent(hits[used - 1])}",
            "x": used + 0.5,
            "y": 0.5,
            "xanchor": "left",
            "showarrow": False,
            "bgcolor": PANEL,
            "font": {"size": 12, "color": INK},
        }
        flag = {"shapes": [line], "annotations": [label]}
    across = axis("rank, K", showgrid=False, range=[0.5, len(counts) + 0.5], dtick=1 if len(counts) <= 16 else 5)
    return draw(traces, hovermode="x", legend_entrywidth=94, xaxis=across, yaxis=share_axis(), **flag)


def shown_ranks(ranks: Ranks) -> tuple[int, ...]:
    """Returns the number of steps at each rank, up to the last rank that occurs or was re-drafted from; at least ``LEAST_RANKS``."""
    last = max((n for n, steps in enumerate(ranks.counts, 1) if steps), default=0)
    return ranks.counts[: max(LEAST_RANKS, last, used_branches(ranks) or 0)]


def used_branches(ranks: Ranks) -> int | None:
    """Returns the mean number of re-drafts in steps that re-drafted, normally K; None if it is not a whole number."""
    mean = ranks.mean_used
    return int(mean) if mean and mean == int(mean) else None


# Tokens gained and nodes spent.


def gains_panel(report: Report) -> Panel:
    gains = report.gains
    rows: list[tuple[Cell, ...]] = []
    names = {}
    for g in gains.sources:
        place = OTHER if g.branch is None else g.branch
        name = source_name(g)
        names[place] = f"{name[:1].upper()}{name[1:]} added tokens"
        won: Cell = (count(g.won, "step"), place) if g.won else "no step"
        rows.append((name, with_interval(g.tokens, decimal), f"{g.nodes:.1f}", percent(g.wasted), won))
    rows.append(("the target’s own token", decimal(gains.bonus), "—", "—", "—"))
    rows.append(
        (
            "together (α)",
            with_interval(gains.tokens_per_step, decimal),
            f"{gains.nodes_per_step:.1f}",
            percent(gains.wasted),
            "",
        )
    )
    return Panel(
        "gains",
        "Tokens gained, nodes spent",
        "For a re-draft, only tokens that no earlier draft contains are counted. A node is wasted if the target does not accept it.",
        tokens_gained(gains),
        FigureTable(("Source", "Tokens gained", "Nodes without the anchor", "Wasted", "Added tokens in"), tuple(rows)),
        names,
    )


def tokens_gained(gains: Gains) -> go.Figure:
    """Draws tokens gained and nodes verified per step, with a row for each source. The last row is the target's own token."""
    names = [source_name(g) for g in gains.sources]
    last = len(gains.sources)
    kinds = ["first" if g.branch == 0 else "second" for g in gains.sources]

    def tokens(kind: str, name: str) -> Trace:
        rows = [n for n, k in enumerate(kinds) if k == kind]
        sources = [gains.sources[n] for n in rows]
        found = [g.tokens for g in sources]
        marks = [OTHER if g.branch is None else g.branch for g in sources]
        options = {"name": name, "width": BAR, "customdata": marks, **whiskers(found, "x")}
        return bars(rows, values_of(found), fill(kind), list(map(gain_words, sources)), across=True, **options)

    words = [f"The target’s own token: {gains.bonus:.2f} a step"]
    bonus = bars([last], [gains.bonus], fill("target"), words, across=True, name="target")
    nodes = bars(
        list(range(last)),
        [g.nodes for g in gains.sources],
        {"color": EDGE},
        across=True,
        name="nodes",
        xaxis="x2",
        text=[f" {g.nodes:.1f}, {percent(g.wasted)}" for g in gains.sources],
        textposition="outside",
        textfont=FINE,
        cliponaxis=False,
        showlegend=False,
    )
    most = max([0.1, *(g.nodes for g in gains.sources)])
    traces = [
        *(tokens(k, n) for k, n in (("first", "first draft"), ("second", "re-drafts")) if k in kinds),
        bonus,
        nodes,
    ]
    return draw(
        traces,
        height=130 + ROW * (last + 1),
        margin={"l": 30, "r": 12, "t": 28, "b": 74},
        xaxis=axis("tokens a step", domain=[0, 0.52], rangemode="tozero"),
        xaxis2=axis(
            "nodes a step, share wasted", domain=[0.58, 1], anchor="y", range=[0, most * 1.9], showgrid=False, nticks=4
        ),
        yaxis=places_axis([*names, "target’s own"], range=[last + 0.5, -0.5]),
    )


def groups_panel(groups: Sequence[Group]) -> Panel:
    rows = tuple(
        (
            cut(g.name),
            (f"{g.positions}", place),
            percent(g.confidence),
            percent(g.accepted),
            with_interval(g.gap, signed),
            digits(g.ece),
            with_interval(g.tokens, decimal),
            with_interval(g.repaired),
        )
        for place, g in enumerate(groups)
    )
    return Panel(
        "domain",
        "By prompt group",
        "In which groups does the first drafter’s mean confidence differ from the accepted share?",
        by_group(groups),
        FigureTable(
            ("Group", "Positions", "Confidence", "Accepted", "Gap (95% interval)", "ECE", "α", "Repaired"), rows
        ),
        {place: f"Prompts of {cut(g.name)}" for place, g in enumerate(groups)},
    )


def source_name(gain: Gain) -> str:
    if gain.branch is None:
        return "lower ranks"
    return f"re-draft {gain.branch}" if gain.branch else "first draft"


def gain_words(gain: Gain) -> str:
    tokens = with_interval(gain.tokens, decimal)
    name = source_name(gain)
    return f"{name[:1].upper()}{name[1:]}: {tokens} tokens a step, added in {count(gain.won, 'step')}<br>{gain.nodes:.1f} nodes a step, {percent(gain.wasted)} wasted"


def by_group(groups: Sequence[Group]) -> go.Figure:
    """Draws the first drafter's confidence and acceptance, one row per group."""
    known = [(n, g) for n, g in enumerate(groups) if g.confidence is not None and g.accepted is not None]

    def accepted(name: str, faint: bool) -> Trace:
        shown = [(n, g) for n, g in known if (g.positions < FEW) == faint]
        found = [_accepted(g) for _, g in shown]
        places, words = [n for n, _ in shown], [group_words(g) for _, g in shown]
        options = {"name": name, "width": BAR, "customdata": places, **whiskers(found, "x")}
        return bars(places, values_of(found), fill("first", faint), words, across=True, **options)

    says = scatter(
        "markers",
        [g.confidence or 0.0 for _, g in known],
        [n for n, _ in known],
        name="confidence",
        marker={"symbol": "diamond", "size": 9, "color": PANEL, "line": {"color": INK, "width": 1.5}},
    )
    traces = [accepted(n, faint) for n, faint in (("accepted", False), (f"n < {FEW}", True))]
    return draw(
        [*(t for t in traces if t["y"]), says],
        height=120 + ROW * len(groups),
        margin={"l": 30, "r": 16, "t": 28, "b": 56},
        xaxis=share_axis(),
        yaxis=places_axis([safe(g.name, 24) for g in groups], range=[len(groups) - 0.5, -0.5]),
    )


def group_words(group: Group) -> str:
    few = "<br>too few to judge" if group.positions < FEW else ""
    gap = with_interval(group.gap, signed)
    return f"{safe(group.name)}: {count(group.positions, 'position')}<br>mean confidence {percent(group.confidence)}, accepted {percent(group.accepted)}, gap {gap} points{few}"


def _accepted(group: Group) -> Estimate:
    """Returns the accepted share of a group. The share's interval is the gap's interval, shifted by the mean confidence."""
    ends = (None if end is None else end + (group.confidence or 0.0) for end in (group.gap.low, group.gap.high))
    return Estimate(group.accepted, *ends)
