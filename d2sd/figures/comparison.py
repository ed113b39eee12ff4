"""The results of a comparison as the page and the reports show them, and its figures: reliability of both sides, how often the
boundary is among the K likeliest, and what differs.

A is a dashed line with circles, B a solid one with squares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import plotly.graph_objects as go

from d2sd.calibration import Bin, Estimate, Gathering
from d2sd.calibration.boundaries import Ranks
from d2sd.calibration.comparison import Comparison, Difference
from d2sd.calibration.report import Curves, compare_gathered, curves
from d2sd.calibration.sentences import (
    Write,
    change,
    digits,
    how_compared,
    percent,
    read_comparison,
    signed,
    with_interval,
)
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
    cut,
    draw,
    places_axis,
    safe,
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


def _number(places: int) -> tuple[Write, Write]:
    """Returns formatters of a value and of a difference, with this many decimals."""
    return lambda v: digits(v, places), lambda v: change(v, places)


# The name of every compared figure, and how it and a difference are written.
COMPARED: dict[str, tuple[str, Write, Write]] = {
    "tokens": ("Tokens per step α", *_number(2)),
    "speed": ("Tokens per second", *_number(0)),
    "first": ("Accepted of the first draft", *_number(2)),
    "hit": ("Boundary re-drafted from", percent, signed),
    "repaired": ("Repaired", percent, signed),
    "redraft": ("Tokens a re-draft brings", *_number(3)),
    "nodes": ("Nodes per step", *_number(1)),
    "gap": ("Accepted − confidence", signed, signed),
    "error": ("ECE above chance", *_number(3)),
    "brier": ("Brier score", *_number(3)),
}


@dataclass(frozen=True, slots=True)
class ComparisonResults:
    """What the page and the reports show of two sets of runs.

    reading: what differs in their settings, then sentences about the figures.
    how: a sentence about the intervals.
    runs: number of runs of either side.
    """

    comparison: Comparison
    reading: tuple[str, ...]
    how: str
    runs: tuple[int, int]
    curves: tuple[Curves, Curves]
    panels: tuple[Panel, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns them as data for a page, ready for orjson."""
        return {
            "comparison": asdict(self.comparison),
            "how": self.how,
            "reading": self.reading,
            "sides": [{"runs": runs, **asdict(own)} for runs, own in zip(self.runs, self.curves, strict=True)],
            "panels": [panel.to_dict() for panel in self.panels],
        }


def comparison_results(a: Gathering, b: Gathering) -> ComparisonResults:
    """Returns what is shown of two sets of runs."""
    found = compare_gathered(a, b)
    both = curves(a.counted().table), curves(b.counted().table)
    return ComparisonResults(
        found,
        (what_differs(a.headers, b.headers, unused), *read_comparison(found)),
        how_compared(found),
        (len(a), len(b)),
        both,
        tuple(comparison_panels(found, *both)),
    )


def comparison_panels(found: Comparison, a: Curves, b: Curves) -> Iterator[Panel]:
    """The differences between two sides, and the curves of both."""
    yield Panel(
        "differences",
        "B − A",
        "Every difference with its interval, each on a separate scale. It is clear if the interval excludes 0.",
        differences(found),
        _differences(compared_figures(found), [COMPARED[d.name][0] for d in compared_figures(found)]),
    )
    places = [*found.groups, *found.positions]
    if places:
        yield Panel(
            "where",
            "Where they differ",
            "By prompt group and by position in the first draft. p is corrected for the number of places by Holm’s method; "
            "each interval is a 95% interval by itself.",
            where(found),
            _where(places),
        )
    bins = [(n, d) for n, d in enumerate(found.bins) if d.count_a or d.count_b]
    yield Panel(
        "both-reliability",
        "Reliability, both",
        "Of the tokens drafted with this confidence, how many does the target accept? On the diagonal the confidence is honest.",
        reliability_curves(a.uniform, b.uniform),
        _differences([d for _, d in bins], [f"Confidence {n / 10:.1f}–{(n + 1) / 10:.1f}" for n, _ in bins]),
    )
    yield Panel(
        "both-ranks",
        "Boundary, both",
        "How often is the true boundary among the K likeliest?",
        rank_curves(a.ranks, b.ranks),
        _differences(found.within, [f"K = {n}" for n in range(1, len(found.within) + 1)]),
    )


def _where(places: Sequence[Difference]) -> Table:
    rows = []
    for d in places:
        write, change = how_written(d)
        sides = (with_interval(d.a, write), with_interval(d.b, write))
        p = "" if d.p is None else p_value(d.p)
        says = "too few" if d.p is None else "clear" if d.clear else "not clear"
        counts = (f"{d.count_a}", f"{d.count_b}")
        rows.append((place_name(d), *counts, *sides, with_interval(d.difference, change), p, says))
    return Table(("", "n of A", "n of B", "A", "B", "B − A (95%)", "p (Holm)", ""), tuple(rows))


def _differences(rows: Sequence[Difference], names: Sequence[str]) -> Table:
    cells = []
    for d, name in zip(rows, names, strict=True):
        _, write, change = COMPARED.get(d.name, ("", percent, signed))
        says = "" if d.difference.low is None else "clear" if d.clear else "not clear"
        sides = (with_interval(d.a, write), with_interval(d.b, write))
        cells.append((name, f"{d.count_a}", f"{d.count_b}", *sides, with_interval(d.difference, change), says))
    return Table(("", "n of A", "n of B", "A", "B", "B − A (95% for all)", ""), tuple(cells))


def reliability_curves(a: Sequence[Bin], b: Sequence[Bin]) -> go.Figure:
    """Reliability curves of both sides; the diagonal is perfect calibration."""
    honest = scatter("lines", [0, 1], [0, 1], line={"color": EDGE, "dash": "dot"}, showlegend=False)
    curves = []
    for side, bins in zip(SIDES, (a, b), strict=True):
        seen = [x for x in bins if x.count]
        words = [f"{side[0]}: says {percent(x.confidence)}, {percent(x.accepted)} of {x.count} accepted" for x in seen]
        figures = [Estimate(x.accepted, x.low, x.high) for x in seen]
        curves.append(_curve(side, [x.confidence for x in seen], figures, words, [x.count < FEW for x in seen]))
    across = axis("confidence", range=[-0.02, 1.02], tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1])
    return draw([honest, *curves], xaxis=across, yaxis=share_axis())


def rank_curves(a: Ranks, b: Ranks) -> go.Figure:
    """How often the true boundary is among the K likeliest, of both sides."""
    depth = min(DEEPEST, max(1, len(a.within), len(b.within)))
    curves = []
    for side, ranks in zip(SIDES, (a, b), strict=True):
        seen = [(n, f) for n, f in enumerate(ranks.within[:depth], 1) if f.value is not None]
        words = [f"{side[0]}: among the {n} likeliest in {with_interval(f)} of {ranks.steps} steps" for n, f in seen]
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
    rows = [d for d in compared_figures(found) if d.difference.low is not None]
    traces = []
    for clear, name in ((True, "clear"), (False, "not clear")):
        chosen = [(n, d) for n, d in enumerate(rows) if d.clear == clear]
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


def compared_figures(found: Comparison) -> list[Difference]:
    """Returns the compared figures in the order of ``COMPARED``."""
    by_name = {d.name: d for d in found.figures}
    return [by_name[name] for name in COMPARED if name in by_name]


def difference_words(d: Difference) -> str:
    """Returns a difference as a sentence."""
    name, write, change = COMPARED[d.name]
    return f"{name}: {write(d.a.value)} → {write(d.b.value)}<br>B − A {with_interval(d.difference, change)}"


def place_name(d: Difference) -> str:
    """What is asked about, in a few words; a group's name is others' text."""
    kind, _, name = d.name.partition(" ")
    return f"α of {cut(name, 24)}" if kind == "group" else f"Token {name} accepted"


def how_written(d: Difference) -> tuple[Write, Write]:
    """How a value and a difference are written."""
    return COMPARED["tokens"][1:] if d.name.startswith("group ") else (percent, signed)


def where(compared: Comparison) -> go.Figure:
    """B − A about 0 at every place, groups by tokens per step and positions by share accepted; clear ones are filled.

    Each of the two has an axis of its own, with 0 in its middle.
    """
    parts = [part for part in (compared.groups, compared.positions) if part]
    rows = [d for part in parts for d in part]
    traces: list[Trace] = []
    for number, part in enumerate(parts):
        first = sum(len(earlier) for earlier in parts[:number])
        known = [(first + n, d) for n, d in enumerate(part) if d.difference.value is not None]
        found = [d.difference for _, d in known]
        fills, edges = ([INK if d.clear else other for _, d in known] for other in (PANEL, MUTED))
        traces.append(
            scatter(
                "markers",
                values_of(found),
                [n for n, _ in known],
                [_words(d) for _, d in known],
                xaxis="x2" if number else "x",
                marker={"size": 8, "color": fills, "line": {"color": edges, "width": 1.5}},
                showlegend=False,
                **whiskers(found, "x"),
            )
        )
    zero = {"zeroline": True, "zerolinecolor": EDGE, "zerolinewidth": 1.5, "nticks": 5}
    axes = {
        f"xaxis{number + 1 if number else ''}": axis(
            "tokens per step, B − A" if part is compared.groups else "share accepted, B − A",
            **zero,
            range=[-_reach(part), _reach(part)],
            tickformat="+.0%" if part is compared.positions else "+.2f",
            **({"overlaying": "x", "side": "top"} if number else {}),
        )
        for number, part in enumerate(parts)
    }
    return draw(
        traces,
        height=130 + ROW * len(rows),
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
