"""Figures of a report: the predicted and the actual end of the first draft."""

from __future__ import annotations

from itertools import chain
from typing import Any

import plotly.graph_objects as go

from d2sd.calibration import Report
from d2sd.calibration.boundaries import WHOLE, Matrix, Ranks
from d2sd.calibration.sentences import count, percent, with_interval
from d2sd.figures.style import (
    BAR,
    COLOURS,
    FINE,
    INK,
    MUTED,
    PANEL,
    Cell,
    Panel,
    Table,
    Trace,
    axis,
    bars,
    draw,
    fill,
    places_axis,
    share_axis,
    vertical,
    whiskers,
)

LEAST_OUTCOMES = 6
LEAST_RANKS = 8


def matrix_panel(report: Report) -> Panel:
    """Returns predicted against actual boundaries."""
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
    whole, rest = sum(matrix.counts[-1]), ("",) * (len(shown) - 2)
    rows.append(("whole draft", (f"{whole}", WHOLE) if whole else "0", percent(matrix.all_happened.value), *rest))
    rows.append(("expected", "", percent(matrix.all_expected.value), *rest))
    return Panel(
        "matrix",
        "Boundary: predicted and actual",
        "Where was the first draft most likely to end, and where did it end? On the diagonal the prediction was right.",
        boundary_matrix(matrix),
        Table(("Actual \\ predicted", *(outcome_name(matrix, p) for p in shown)), tuple(rows)),
        names | {WHOLE: "Whole first draft accepted"},
    )


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
    shown: list[Trace] = []
    for row, (name, figure) in enumerate((("expected", matrix.all_expected), ("happened", matrix.all_happened))):
        value = figure.value or 0.0
        words = [f"Whole first draft accepted: {name} in {with_interval(figure)} of the steps"]
        options = {
            "xaxis": "x2",
            "yaxis": "y2",
            "text": [f" {name} {percent(figure.value)}"],
            "textposition": "outside" if value < 0.5 else "inside",
            "textfont": {"size": 11},
            "insidetextanchor": "start",
            "cliponaxis": False,
            "customdata": [WHOLE],
        }
        shown.append(bars("", [row], [value], fill("first", faint=not row), words, across=True, **options))
    return shown


def outcomes(matrix: Matrix) -> list[int]:
    """Outcomes that are drawn: up to the last one that was predicted or happened, and that all was accepted if it did."""
    whole = len(matrix.counts) - 1
    used = [i for i in range(whole + 1) if any(matrix.counts[i]) or any(row[i] for row in matrix.counts)]
    last = max([min(whole, LEAST_OUTCOMES) - 1, *(i for i in used if i < whole)])
    return [*range(last + 1), *([whole] if whole > 0 and whole in used else [])]


def outcome_name(matrix: Matrix, outcome: int) -> str:
    """Returns how many tokens were accepted, or that all were."""
    return "all" if outcome == len(matrix.counts) - 1 else f"{outcome}"


def ranks_panel(report: Report) -> Panel:
    """Returns ranks of the true boundary and hit rates by K."""
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
        "Bars: how often it was the 1st, 2nd … likeliest. Line: how often it is among the K likeliest.",
        boundary_ranks(ranks),
        Table(("Rank = K", "Steps", "Share", "Among the K likeliest", "At random"), rows),
        {n: f"True boundary ranked {n + 1}" for n in range(len(rows))},
    )


def boundary_ranks(ranks: Ranks) -> go.Figure:
    """Returns a figure of the rank of the true boundary, and of how often it is among the K likeliest."""
    counts, steps = shown_ranks(ranks), max(1, ranks.steps)
    at, used = list(range(1, len(counts) + 1)), used_branches(ranks)
    within = [f for f, _ in zip(ranks.within, counts, strict=False)]
    hits = [f.value or 0.0 for f in within]

    def words(n: int) -> str:
        among = f"<br>among the {n} likeliest in {with_interval(ranks.within[n - 1])}, at random {percent(ranks.chance[n - 1])}"
        return f"True boundary ranked {n}: {count(counts[n - 1], 'step')} of {ranks.steps}{among}"

    def ranked(name: str, kind: str, shown: list[int]) -> Trace:
        shares = [counts[n - 1] / steps for n in shown]
        marks = [n - 1 for n in shown]
        return bars(name, shown, shares, fill(kind), [words(n) for n in shown], width=BAR, customdata=marks)

    traces: list[Trace] = [
        *([ranked("re-drafted from", "second", at[:used])] if used else []),
        ranked("this rank", "first", at[used or 0 :]),
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
        line = vertical(used + 0.5, COLOURS["second"], "dash")
        label = {
            "text": f"K = {used}: {percent(hits[used - 1])}",
            "x": used + 0.5,
            "y": 0.5,
            "xanchor": "left",
            "showarrow": False,
            "bgcolor": PANEL,
            "font": {"size": 12, "color": COLOURS["second"]},
        }
        flag = {"shapes": [line], "annotations": [label]}
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
