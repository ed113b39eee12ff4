"""Figures of confidence against outcome: by confidence, by position, and by expected gain of a re-draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import plotly.graph_objects as go

from d2sd.calibration import Bin, Estimate
from d2sd.calibration.boundaries import Gain, GainBin, Gains, Matrix, Ranks, Second, TemperatureAdvice
from d2sd.calibration.scores import Group, Position
from d2sd.calibration.sentences import count, temperature_words
from d2sd.figures.style import (
    COLOURS,
    EDGE,
    FEW,
    FINE,
    INK,
    MUTED,
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


# Figures of the predicted and the actual end of the first draft.


LEAST_OUTCOMES = 6
LEAST_RANKS = 8
WHOLE = -1  # the place of the bars of wholly accepted drafts


def boundary_matrix(matrix: Matrix) -> go.Figure:
    """Steps by predicted and actual boundary, over bars of how often the whole first draft was expected to be accepted
    and was."""
    shown, size = outcomes(matrix), len(matrix.counts)
    names = [outcome_name(matrix, i) for i in shown]
    counts = [[matrix.counts[a][p] for p in shown] for a in shown]
    most = max(1, *chain.from_iterable(counts)) if shown else 1
    words = [
        [f"Predicted {names[p]}, actual {names[a]}: {count(counts[a][p], 'step')}" for p in range(len(shown))]
        for a in range(len(shown))
    ]
    cells: Trace = {
        "type": "heatmap",
        "x": list(range(len(shown))),
        "y": list(range(len(shown))),
        "z": [[(n / most) ** 0.5 if n else None for n in row] for row in counts],
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, COLOURS["first-tint"]], [1, COLOURS["first"]]],
        "showscale": False,
        "xgap": 1.5,
        "ygap": 1.5,
        "text": [[f"{n}" if n else "" for n in row] for row in counts],
        "texttemplate": "%{text}",
        "textfont": {"size": 10},
        "customdata": [[a * size + p for p in shown] for a in shown],
        "hovertext": words,
        "hoverinfo": "text",
    }
    right = [
        {
            "type": "rect",
            "x0": n - 0.46,
            "x1": n + 0.46,
            "y0": n - 0.46,
            "y1": n + 0.46,
            "line": {"color": MUTED, "width": 1},
        }
        for n in range(len(shown))
    ]
    square = places_axis(names, "predicted", domain=[0, 1], anchor="y", side="top", constrain="domain", tickangle=0)
    down = places_axis(names, "actual", domain=[0.24, 1], range=[len(shown) - 0.5, -0.5])
    return draw(
        [cells, *_whole(matrix)],
        height=max(330, 150 + 22 * len(shown)),
        margin={"l": 44, "r": 12, "t": 60, "b": 34},
        hovermode="closest",
        plot_bgcolor=COLOURS["sunken"],
        shapes=right,
        showlegend=False,
        bargap=0.3,
        xaxis=square,
        yaxis=down,
        xaxis2=share_axis(domain=[0, 1], anchor="y2"),
        yaxis2=axis(domain=[0, 0.13], anchor="x2", range=[1.5, -0.5], showticklabels=False, showgrid=False),
        annotations=[
            {
                "text": "whole first draft accepted",
                "x": 0,
                "y": 0.135,
                "xref": "paper",
                "yref": "paper",
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
                "font": FINE,
            }
        ],
    )


def _whole(matrix: Matrix) -> list[Trace]:
    """Bars of the wholly accepted drafts: expected (hollow) and happened."""
    bars: list[Trace] = []
    for row, (name, figure) in enumerate((("expected", matrix.all_expected), ("happened", matrix.all_happened))):
        value = figure.value or 0.0
        bars.append(
            {
                "type": "bar",
                "orientation": "h",
                "x": [value],
                "y": [row],
                "xaxis": "x2",
                "yaxis": "y2",
                "marker": fill("first", faint=not row),
                "text": [f" {name} {percent(figure.value)}"],
                "textposition": "outside" if value < 0.5 else "inside",
                "textfont": {"size": 11},
                "insidetextanchor": "start",
                "cliponaxis": False,
                "customdata": [WHOLE],
                "hovertext": [f"Whole first draft accepted: {name} in {with_interval(figure)} of the steps"],
                "hoverinfo": "text",
            }
        )
    return bars


def outcomes(matrix: Matrix) -> list[int]:
    """Outcomes that are drawn: up to the last one that was predicted or happened, and that all was accepted if it did."""
    whole = len(matrix.counts) - 1
    used = [i for i in range(whole + 1) if any(matrix.counts[i]) or any(row[i] for row in matrix.counts)]
    last = max([min(whole, LEAST_OUTCOMES) - 1, *(i for i in used if i < whole)])
    return [*range(last + 1), *([whole] if whole > 0 and whole in used else [])]


def outcome_name(matrix: Matrix, outcome: int) -> str:
    """Returns how many tokens were accepted, or that all were."""
    return "all" if outcome == len(matrix.counts) - 1 else f"{outcome}"


def boundary_ranks(ranks: Ranks) -> go.Figure:
    """Returns a figure of the rank of the true boundary, and of how often it is among the K likeliest."""
    counts, steps = shown_ranks(ranks), max(1, ranks.steps)
    at, used = list(range(1, len(counts) + 1)), used_branches(ranks)
    within = [f for f, _ in zip(ranks.within, counts, strict=False)]
    hits = [f.value or 0.0 for f in within]

    def words(n: int) -> str:
        among = f"<br>among the {n} likeliest in {with_interval(ranks.within[n - 1])}, at random {percent(ranks.chance[n - 1])}"
        return f"True boundary ranked {n}: {count(counts[n - 1], 'step')} of {ranks.steps}{among}"

    def bars(name: str, kind: str, chosen: list[int]) -> Trace:
        return {
            "type": "bar",
            "width": 0.64,
            "name": name,
            "x": chosen,
            "y": [counts[n - 1] / steps for n in chosen],
            "marker": fill(kind),
            "customdata": [n - 1 for n in chosen],
            "hovertext": [words(n) for n in chosen],
            "hoverinfo": "text",
        }

    traces: list[Trace] = [
        *([bars("re-drafted from", "second", at[:used])] if used else []),
        bars("this rank", "first", at[used or 0 :]),
        {
            "type": "scatter",
            "name": "among K likeliest",
            "x": at[: len(hits)],
            "y": hits,
            "mode": "lines+markers",
            "line": {"color": INK, "width": 1.75},
            "marker": {"size": 6, "color": INK},
            "hoverinfo": "skip",
            **whiskers(hits, within),
        },
        {
            "type": "scatter",
            "name": "K at random",
            "x": at[: len(hits)],
            "y": list(ranks.chance[: len(hits)]),
            "mode": "lines",
            "line": {"color": MUTED, "width": 1.5, "dash": "dot"},
            "hoverinfo": "skip",
        },
    ]
    flag: dict[str, Any] = {}
    if used and used <= len(hits) and ranks.steps:
        line = {
            "type": "line",
            "x0": used + 0.5,
            "x1": used + 0.5,
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "line": {"color": COLOURS["second"], "width": 1.5, "dash": "dash"},
        }
        told = {
            "text": f"K = {used}: {percent(hits[used - 1])}",
            "x": used + 0.5,
            "y": 0.5,
            "xanchor": "left",
            "showarrow": False,
            "bgcolor": PANEL,
            "font": {"size": 12, "color": COLOURS["second"]},
        }
        flag = {"shapes": [line], "annotations": [told]}
    across = axis("rank, K", showgrid=False, range=[0.5, len(counts) + 0.5], dtick=1 if len(counts) <= 16 else 5)
    return draw(traces, legend_entrywidth=94, xaxis=across, yaxis=share_axis(), **flag)


def shown_ranks(ranks: Ranks) -> tuple[int, ...]:
    """Returns steps by rank, up to the last rank that occurs."""
    last = max((n for n, steps in enumerate(ranks.counts, 1) if steps), default=0)
    return ranks.counts[: max(LEAST_RANKS, last, used_branches(ranks) or 0)]


def used_branches(ranks: Ranks) -> int | None:
    """Returns K if all runs used the same one."""
    mean = ranks.mean_used
    return int(mean) if mean and mean == int(mean) else None


# Figures of the gain and cost of drafts, by group of prompts and tokens, and of a better softmax temperature.


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
