"""Figures of a calibration report about rejection boundaries, about the tokens and nodes of each draft, and about prompt groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from d2sd.calibration import Estimate
from d2sd.calibration.boundaries import Gain, Gains, Matrix, Ranks
from d2sd.calibration.scores import Group
from d2sd.calibration.steps import OTHER
from d2sd.calibration.text import (
    Table,
    capitalized,
    count,
    cut,
    decimal,
    digits,
    percent,
    signed,
    with_interval,
)
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
    Panel,
    Properties,
    axis,
    bars,
    draw,
    fill,
    hover_texts,
    places_axis,
    rows_axis,
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
FRAME = {"x0": -0.46, "x1": 0.46, "y0": -0.46, "y1": 0.46}  # frame of a diagonal cell, relative to the cell's centre


def matrix_panel(matrix: Matrix) -> Panel:
    outcomes, size = shown_outcomes(matrix), len(matrix.counts)
    places = list(range(len(outcomes)))
    labels = ["all" if outcome == size - 1 else f"{outcome}" for outcome in outcomes]
    counts = [[matrix.counts[actual][predicted] for predicted in outcomes] for actual in outcomes]
    texts = [[f"{n}" if n else "" for n in row] for row in counts]
    marks = [[actual * size + predicted for predicted in outcomes] for actual in outcomes]
    names = [[f"Predicted {predicted}, actual {actual}" for predicted in labels] for actual in labels]
    rows = [
        (label, *((text, mark) if text else "" for text, mark in zip(texts[n], marks[n], strict=True)))
        for n, label in enumerate(labels)
    ]
    most = max([1, *chain.from_iterable(counts)])
    cells = {
        "type": "heatmap",
        "x": places,
        "y": places,
        "z": [[(n / most) ** 0.5 if n else None for n in row] for row in counts],
        "zmin": 0,
        "zmax": 2,  # twice the largest value: the darkest cell gets the middle colour, on which numbers are readable in both themes
        "colorscale": [[0, COLOURS["first-tint"]], [1, COLOURS["first"]]],
        "showscale": False,
        "xgap": 1.5,
        "ygap": 1.5,
        "text": texts,
        "texttemplate": "%{text}",
        "textfont": {"size": 10, "color": INK},
        "customdata": marks,
        "hovertext": [
            [f"{name}: {count(n, 'step')}" for name, n in zip(*row, strict=True)]
            for row in zip(names, counts, strict=True)
        ],
        "hoverinfo": "text",
    }
    frame = {"type": "rect", "line": {"color": MUTED, "width": 1}}
    diagonal = [{**frame, **{end: n + offset for end, offset in FRAME.items()}} for n in places]
    # if there are many labels, only every second one and the last one are shown
    ticks = [
        label if len(labels) < MANY_OUTCOMES or (n % 2 == 0 and n < len(labels) - 2) or n == places[-1] else ""
        for n, label in enumerate(labels)
    ]
    figure = draw(
        [cells],
        height=max(HEIGHT, 84 + 22 * len(outcomes)),
        margin={"t": 60, "b": 12},
        plot_bgcolor=COLOURS["sunken"],
        shapes=diagonal,
        xaxis=places_axis(ticks, "predicted", side="top", tickangle=0),
        yaxis=rows_axis(ticks, "actual"),
    )
    return Panel(
        "matrix",
        "Boundary: predicted and actual",
        "How many tokens of the first draft were predicted to be accepted, and how many were? On the diagonal, the prediction was right.",
        figure,
        Table(("Actual \\ predicted", *labels), tuple(rows)),
        dict(zip(chain.from_iterable(marks), chain.from_iterable(names), strict=True)),
    )


def shown_outcomes(matrix: Matrix) -> list[int]:
    """Returns the outcomes (numbers of accepted tokens) that the figure shows, ascending.

    These are all outcomes from 0 to the largest one that was predicted or happened, but at least ``LEAST_OUTCOMES`` of them. Full
    acceptance is shown only if it was predicted or happened.
    """
    whole = len(matrix.counts) - 1
    used = [i for i in range(whole + 1) if any(matrix.counts[i]) or any(row[i] for row in matrix.counts)]
    last = max([min(whole, LEAST_OUTCOMES) - 1, *(i for i in used if i < whole)])
    return [*range(last + 1), *([whole] if whole > 0 and whole in used else [])]


def ranks_panel(ranks: Ranks) -> Panel:
    """Returns the panel about the rank of the true boundary.

    Bars show how often it has each rank, and a line how often it is among the K likeliest boundaries. The panel shows all ranks that
    occur or were re-drafted from, but at least the first ``LEAST_RANKS``.
    """
    last = max((n for n, steps in enumerate(ranks.counts, 1) if steps), default=0)
    counts = ranks.counts[: max(LEAST_RANKS, last, ranks.num_branches or 0)]
    shares = [steps / max(1, ranks.steps) for steps in counts]
    numbers, within, chance = list(range(1, len(counts) + 1)), ranks.within[: len(counts)], ranks.chance[: len(counts)]
    rows = tuple(
        (
            f"{rank}",
            (f"{steps}", rank - 1) if steps else "0",
            percent(share) if ranks.steps else "—",
            with_interval(hits),
            percent(random),
        )
        for rank, steps, share, hits, random in zip(numbers, counts, shares, within, chance, strict=True)
    )
    table = Table(("Rank = K", "Steps", "Share", "Among the K likeliest", "At random"), rows)
    hovers = hover_texts(table)

    def ranked(name: str, kind: str, part: slice) -> Properties:
        marks = [rank - 1 for rank in numbers[part]]
        return bars(numbers[part], shares[part], fill(kind), hovers[part], name=name, width=BAR, customdata=marks)

    used = ranks.num_branches or 0
    traces = [ranked("re-drafted from", "second", slice(used))] if used else []
    traces += [
        ranked("this rank", "first", slice(used, None)),
        scatter(
            "lines+markers",
            numbers,
            values_of(within),
            name="among K likeliest",
            line={"color": INK, "width": 1.75},
            marker={"size": 6, "color": INK},
            **whiskers(within),
        ),
        scatter("lines", numbers, chance, name="K at random", line={"color": MUTED, "width": 1.5, "dash": "dot"}),
    ]
    flag: Properties = {}
    if 0 < used <= len(counts) and ranks.steps:
        label = {
            "text": f"K = {used}: {percent(within[used - 1].value)}",
            "x": used + 0.5,
            "y": 0.5,
            "xanchor": "left",
            "showarrow": False,
            "bgcolor": PANEL,
            "font": {"size": 12, "color": INK},
        }
        flag = {"shapes": [vertical(used + 0.5, INK, "dash")], "annotations": [label]}
    across = axis("rank, K", showgrid=False, range=[0.5, len(counts) + 0.5], dtick=1 if len(counts) <= 16 else 5)
    figure = draw(traces, hovermode="x", legend_entrywidth=94, xaxis=across, yaxis=share_axis(), **flag)
    return Panel(
        "ranks",
        "Rank of the true boundary",
        "Bars: how often the true boundary was the likeliest, the second likeliest, … Line: how often it was among the K likeliest.",
        figure,
        table,
        {rank - 1: f"True boundary ranked {rank}" for rank in numbers},
    )


# Tokens gained and nodes spent.


def gains_panel(gains: Gains) -> Panel:
    """Returns the panel of tokens gained and nodes verified per step. It has a row for each source of tokens."""
    sources = gains.sources
    names = [_source_name(gain) for gain in sources]
    marks = [OTHER if gain.branch is None else gain.branch for gain in sources]
    rows = [
        (
            name,
            with_interval(gain.tokens, decimal),
            f"{gain.nodes:.1f}",
            percent(gain.wasted),
            (count(gain.won, "step"), mark) if gain.won else "no step",
        )
        for name, mark, gain in zip(names, marks, sources, strict=True)
    ]
    bonus = ("the target’s own token", decimal(gains.bonus), "—", "—", "—")
    alpha, nodes = with_interval(gains.tokens_per_step, decimal), f"{gains.nodes_per_step:.1f}"
    table = Table(
        ("Source", "Tokens added", "Nodes without the anchor", "Wasted", "Added tokens in"),
        (*rows, bonus, ("together (α)", alpha, nodes, percent(gains.wasted), "")),
    )
    hovers, places = hover_texts(table), list(range(len(sources)))
    traces = []
    for kind, name in (("first", "first draft"), ("second", "re-drafts")):
        drawn = [n for n in places if (sources[n].branch == 0) == (kind == "first")]
        tokens = [sources[n].tokens for n in drawn]
        options = {"name": name, "width": BAR, "customdata": [marks[n] for n in drawn], **whiskers(tokens, "x")}
        if drawn:
            texts = [hovers[n] for n in drawn]
            traces.append(bars(drawn, values_of(tokens), fill(kind), texts, across=True, **options))
    last = len(sources)
    traces += [
        bars([last], [gains.bonus], fill("target"), [hovers[last]], across=True, name="target"),
        bars(
            places,
            [gain.nodes for gain in sources],
            {"color": EDGE},
            across=True,
            name="nodes",
            xaxis="x2",
            text=[f" {gain.nodes:.1f}, {percent(gain.wasted)}" for gain in sources],
            textposition="outside",
            textfont=FINE,
            cliponaxis=False,
            showlegend=False,
        ),
    ]
    most = max([0.1, *(gain.nodes for gain in sources)])
    figure = draw(
        traces,
        height=130 + ROW * (last + 1),
        margin={"l": 30, "t": 28},
        xaxis=axis("tokens a step", domain=[0, 0.52], rangemode="tozero"),
        xaxis2=axis(
            "nodes a step, share wasted", domain=[0.58, 1], anchor="y", range=[0, most * 1.9], showgrid=False, nticks=4
        ),
        yaxis=rows_axis([*names, "target’s own"]),
    )
    return Panel(
        "gains",
        "Tokens added, nodes spent",
        "For a re-draft, only tokens that no earlier draft contains are counted. A node is wasted if the target does not accept it.",
        figure,
        table,
        {mark: f"{capitalized(name)} added tokens" for mark, name in zip(marks, names, strict=True)},
    )


def _source_name(gain: Gain) -> str:
    if gain.branch is None:
        return "lower ranks"
    return f"re-draft {gain.branch}" if gain.branch else "first draft"


def groups_panel(groups: Sequence[Group]) -> Panel:
    """Returns the panel of the first drafter's mean confidence and accepted share. It has a row for each prompt group."""
    rows = tuple(
        (
            cut(g.name),
            (f"{g.positions}", place),
            percent(g.confidence),
            percent(g.accepted),
            with_interval(g.gap, signed),
            digits(g.ece),
            digits(g.brier),
            with_interval(g.tokens, decimal),
            with_interval(g.repaired),
        )
        for place, g in enumerate(groups)
    )
    table = Table(
        ("Group", "Positions", "Confidence", "Accepted", "Gap (95% interval)", "ECE", "Brier score", "α", "Rescued"),
        rows,
    )
    hovers = hover_texts(table, [g.positions for g in groups])
    judged = [n for n, g in enumerate(groups) if g.confidence is not None and g.accepted is not None]
    traces = []
    for name, faint in (("accepted", False), (f"n < {FEW}", True)):
        drawn = [n for n in judged if (groups[n].positions < FEW) == faint]
        accepted = [_accepted(groups[n]) for n in drawn]
        options = {"name": name, "width": BAR, "customdata": drawn, **whiskers(accepted, "x")}
        if drawn:
            texts = [hovers[n] for n in drawn]
            traces.append(bars(drawn, values_of(accepted), fill("first", faint), texts, across=True, **options))
    diamonds = scatter(
        "markers",
        [groups[n].confidence or 0.0 for n in judged],
        judged,
        name="confidence",
        marker={"symbol": "diamond", "size": 9, "color": PANEL, "line": {"color": INK, "width": 1.5}},
    )
    figure = draw(
        [*traces, diamonds],
        height=120 + ROW * len(groups),
        margin={"l": 30, "r": 16, "t": 28, "b": 56},
        xaxis=share_axis(),
        yaxis=rows_axis([safe(g.name, 24) for g in groups]),
    )
    return Panel(
        "domain",
        "By prompt group",
        "In which groups does the first drafter’s mean confidence differ from the accepted share?",
        figure,
        table,
        {place: f"Prompts of {cut(g.name)}" for place, g in enumerate(groups)},
    )


def _accepted(group: Group) -> Estimate:
    """Returns the accepted share of a group. Its interval is that of the gap, shifted by the group's mean confidence."""
    ends = (None if end is None else end + (group.confidence or 0.0) for end in (group.gap.low, group.gap.high))
    return Estimate(group.accepted, *ends)
