"""Results of a calibration as the page and the reports show them, and the figures of confidence, acceptance and shorter drafts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import plotly.graph_objects as go

from d2sd.calibration import Bin, Estimate, Report, RunStatistics, Sentence, read_report
from d2sd.calibration.boundaries import DraftConfidence, Second
from d2sd.calibration.scores import PositionAcceptance
from d2sd.calibration.text import Table, Write, count, digits, percent
from d2sd.calibration.thresholds import THRESHOLDS, Stop, Stops, caption, stop_sentences, stop_table, verdict
from d2sd.figures.boundaries import gains_panel, groups_panel, matrix_panel, ranks_panel
from d2sd.figures.style import (
    BAR,
    COLOURS,
    EDGE,
    FEW,
    INK,
    PANEL,
    Legend,
    Panel,
    Properties,
    Stat,
    axis,
    bars,
    draw,
    fill,
    hover_texts,
    places_axis,
    scatter,
    share_axis,
    values_of,
    whiskers,
)

COUNTS = 0.13  # height of the bars of counts, as a share of the figure's height


@dataclass(frozen=True, slots=True, repr=False)
class CalibrationFigures:
    """The parts of a calibration that the page and the reports show.

    reading: sentences, the verdict first.
    stats: headline numbers.
    panels: the plots with their tables.
    """

    reading: tuple[Sentence, ...]
    stats: tuple[Stat, ...]
    panels: tuple[Panel, ...]

    def __repr__(self) -> str:
        return f"<CalibrationFigures: {len(self.panels)} panels>"

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as JSON-ready data."""
        return {"reading": self.reading, "stats": self.stats, "panels": [panel.to_dict() for panel in self.panels]}


def calibration_results(runs: RunStatistics) -> CalibrationFigures:
    """Returns the sentences, headline numbers and panels about measured runs.

    runs: the statistics of the runs.
    """
    report = runs.report()
    reading = *read_report(report), *stop_sentences(report.stops, bool(report.head))
    return CalibrationFigures(reading, tuple(headline(report)), tuple(calibration_panels(report)))


def headline(report: Report) -> Iterator[Stat]:
    """Yields the headline numbers of a report. Numbers about re-drafts are left out if there were no re-drafts."""
    yield from _errors(report)
    if report.head:
        yield from (replace(stat, name=f"{stat.name}, confidence head") for stat in _errors(report.head))
    ranks = report.ranks
    if ranks.repaired.value is None:
        return
    hits = "" if ranks.used.value is None else f"; boundary found in {percent(ranks.used.value)}"
    yield Stat(
        "Rescued drafts",
        percent(ranks.repaired.value),
        f"{_range(ranks.repaired, percent)} of {count(ranks.chosen, 'step')}{hits}",
        "Share of steps in which a re-draft began exactly at the rejection boundary and added tokens. Only steps with re-drafts and a "
        "rejected token of the first draft count.",
    )
    per = report.gains.per_redraft
    yield Stat(
        "Tokens per re-draft",
        digits(per.value),
        "" if per.value is None else _range(per),
        "Tokens added by re-drafts, divided by the number of re-drafts.",
    )


def _errors(figures: DraftConfidence) -> Iterator[Stat]:
    """Yields ECE and Brier score."""
    ece = (
        "Expected calibration error: the mean absolute difference between confidence and acceptance over ten bins of equal width. 0 is "
        "perfect. “Chance” is the error that a perfectly calibrated drafter would show with the same number of tokens."
    )
    brier = (
        "Mean of (confidence − outcome)², where the outcome is 1 for an accepted token, else 0. “Chance” is the mean for a perfectly "
        "calibrated drafter with these confidences."
    )
    for name, figure, chance, meaning in (
        ("ECE", figures.ece, figures.chance, ece),
        ("Brier score", figures.brier, figures.brier_chance, brier),
    ):
        note = "" if chance is None else f"{_range(figure)}; chance {digits(chance)}"
        yield Stat(name, digits(figure.value), note, meaning)


def _range(figure: Estimate, write: Write = digits) -> str:
    return "no interval" if figure.low is None else f"{write(figure.low)} to {write(figure.high)}"


def calibration_panels(report: Report) -> Iterator[Panel]:
    """Yields the panels of a report in reading order. Panels without data are left out.

    report: result of ``d2sd.calibration.calibrate``.
    """
    if not report.steps:
        return
    yield from _of_confidence(report)
    if report.stops:
        yield stops_panel(report.stops)
    yield gains_panel(report.gains)
    if report.second and report.second.positions:
        yield _second(report.second)
    if report.domains:
        yield groups_panel(report.domains)
    if report.head and report.head.positions:
        for panel in _of_confidence(report.head):
            names = {place: f"Confidence head: {name}" for place, name in panel.names.items()}
            yield replace(panel, id=f"head-{panel.id}", title=f"{panel.title}, confidence head", names=names)


def _of_confidence(figures: DraftConfidence) -> Iterator[Panel]:
    question = "Of the tokens drafted with this confidence, how many does the target accept?"
    # one legend for two neighbouring figures: by confidence and by position
    legend = _legend([*figures.uniform, *figures.by_position])
    yield _reliability("uniform", "Reliability", question, figures.uniform, legend)
    yield _by_position(figures.by_position)
    if any(map(any, figures.matrix.counts)):
        yield matrix_panel(figures.matrix)
        yield ranks_panel(figures.ranks)


# Confidence and acceptance, by bin of confidence or by position.

# Name and figures of each bin or position, by its place on the x axis. The place also identifies the mark in ``Panel.names``.
Groups = dict[int, tuple[str, Bin | PositionAcceptance]]


def _reliability(
    id: str, title: str, question: str, bins: Sequence[Bin], legend: Legend, name: str = "Confidence"
) -> Panel:
    """Returns the panel with the reliability diagram of these bins.

    id, title, question, legend: as in ``Panel``. The id "second" gives the bars the second drafter's colour.
    name: beginning of the names of all marks.
    """
    edges = [*(b.left for b in bins), 1.0]
    scale: Properties = {
        "tickvals": [n - 0.5 for n in range(len(edges))],
        "ticktext": ["" if n % 2 else f"{e:g}" for n, e in enumerate(edges)],  # not all labels fit
        "range": [-0.5, len(bins) - 0.5],
    }
    groups: Groups = {n: (f"{b.left:g}–{b.right:g}", b) for n, b in enumerate(bins) if b.count}
    table = _table("Confidence", groups)
    figure = _figure(groups, table, "second" if id == "second" else "first", "confidence", **scale)
    return Panel(id, title, question, figure, table, _names(name, groups), legend)


def _second(second: Second) -> Panel:
    question = (
        f"{second.right} of {count(second.redrafts, 're-draft')} had a correct prefix. Only these re-drafts count, up to their first rejected token. "
        "Of their tokens with this confidence, how many does the target accept?"
    )
    title = "Second drafter’s confidence"
    return _reliability("second", title, question, second.uniform, _legend(second.uniform), title)


def _by_position(positions: Sequence[PositionAcceptance]) -> Panel:
    groups: Groups = {p.position: (f"{p.position}", p) for p in positions}
    table, last = _table("Position", groups), max(groups, default=1)
    scale: Properties = {"range": [0.5, last + 0.5], "dtick": 1 if last < 10 else 2}
    figure = _figure(groups, table, "first", "position in the draft", **scale)
    return Panel(
        "positions",
        "By position",
        "If all earlier tokens of a draft are accepted, how often is the token at this position accepted too?",
        figure,
        table,
        _names("Position", groups),
    )


def _names(kind: str, groups: Groups) -> dict[int, str]:
    return {place: f"{kind} {name}" for place, (name, _) in groups.items()}


def _table(heading: str, groups: Groups) -> Table:
    rows = (
        (name, (f"{g.count}", place), digits(g.confidence), digits(g.accepted), f"{digits(g.low)}–{digits(g.high)}")
        for place, (name, g) in groups.items()
    )
    return Table((heading, "Positions", "Mean confidence", "Accepted", "95% interval"), tuple(rows))


def _legend(groups: Sequence[Bin | PositionAcceptance]) -> Legend:
    """Returns the legend of a figure of these bins or positions: only the kinds of marks that the figure has."""
    counted = [g for g in groups if g.count]
    over = {g.confidence > g.accepted for g in counted if g.confidence is not None}
    occurs = {
        "accepted": any(g.count >= FEW for g in counted),
        "few": any(g.count < FEW for g in counted),
        "over-confident": True in over,
        "under-confident": False in over,
        "confidence": bool(over),
    }
    return tuple((look, f"n < {FEW}" if look == "few" else look) for look, there in occurs.items() if there)


def _figure(groups: Groups, table: Table, kind: str, title: str, **scale: Any) -> go.Figure:
    """Returns a figure of the accepted share and the mean confidence of each group.

    It shows accepted shares as bars with intervals, mean confidences as diamonds, the gaps between them, and the counts at the
    bottom. Marks of groups of fewer than ``FEW`` positions are pale.

    table: the numbers of the figure, for the hover texts.
    kind: colour of the bars, a key of ``PATTERNS``.
    title: title of the x axis.
    scale: further options of the x axis.
    """
    of = {place: group for place, (_, group) in groups.items()}
    places, counts = list(of), [group.count for group in of.values()]
    hovers = dict(zip(places, hover_texts(table, counts), strict=True))

    def accepted(faint: bool) -> Properties:
        drawn = [place for place in places if (of[place].count < FEW) == faint]
        shares = [Estimate(of[place].accepted, of[place].low, of[place].high) for place in drawn]
        options = {"width": BAR, "customdata": drawn, **whiskers(shares, color=EDGE if faint else INK)}
        return bars(drawn, values_of(shares), fill(kind, faint), [hovers[place] for place in drawn], **options)

    def gap(colour: str, shape: str, over: bool) -> Properties:
        ends = {
            place: (group.confidence, group.accepted)
            for place, group in of.items()
            if group.confidence is not None and (group.confidence > group.accepted) == over
        }
        dark, light = COLOURS[colour], COLOURS["sunken"]
        pattern = {"shape": shape, "fgcolor": dark, "bgcolor": light, "size": 5, "solidity": 0.4}
        strength = [0.25 if of[place].count < FEW else 0.85 for place in ends]
        marker = {"color": dark, "opacity": strength, "pattern": pattern, "line": {"color": dark, "width": 1}}
        sizes, base = [max(e) - min(e) for e in ends.values()], [min(e) for e in ends.values()]
        return bars([*ends], sizes, marker, width=BAR, base=base)

    edges = [EDGE if count < FEW else INK for count in counts]
    traces = [
        accepted(faint=False),
        accepted(faint=True),
        gap("reject", "/", over=True),
        gap("muted", ".", over=False),
        scatter(
            "lines+markers",
            places,
            [group.confidence for group in of.values()],
            line={"color": INK, "width": 1.25, "dash": "dash"},
            marker={"symbol": "diamond", "size": 8, "color": PANEL, "line": {"color": edges, "width": 1.5}},
        ),
        bars(places, counts, {"color": EDGE}, width=BAR, yaxis="y2"),
    ]
    most = max(counts, default=1)
    below = axis(
        domain=[0, COUNTS],
        showgrid=False,
        fixedrange=True,
        tickvals=[most / 2],
        ticktext=[f"n ≤ {most}"],
        range=[0, most * 1.02],
    )
    return draw(
        traces,
        hovermode="x",
        margin={"t": 12, "b": 44},
        showlegend=False,  # ``Panel.legend`` instead
        xaxis=axis(title, showgrid=False, anchor="y2", **scale),
        yaxis=share_axis(domain=[COUNTS + 0.08, 1]),
        yaxis2=below,
    )


# Where drafting should stop.

LOOKS = {  # for each rule of ``kept_tokens``: name, colour, dash pattern and marker of its line
    "product": ("product of confidences", "first", "solid", "circle"),
    "single": ("single confidence", "second", "dash", "diamond"),
    "length": ("fixed length", "target", "dot", "square"),
}
CHOSEN = "chosen on half the prompts"
MOST_TIME = 1.5  # upper end of the time axis, on which 1 is the time with whole drafts; the time with very short drafts is larger


def stops_panel(stops: Stops) -> Panel:
    """Returns the panel about where drafting should stop: it plots α, nodes and, if costs are known, time per token.

    The x axis of the left half is the threshold, and that of the right half the length of drafts.
    """
    table, (*cuts, whole) = stop_table(stops), stops.stops
    # not strict, since rows of prompt groups follow in the table
    hovers = dict(zip((whole, *cuts), hover_texts(table), strict=False))
    lines: list[Properties] = []
    rings: list[Properties] = []
    for rule in LOOKS:
        shown = [s for s in stops.stops if s.rule == rule]
        if rule != "length":
            shown.insert(0, whole)
        places = {stop: stop.value if rule == "length" else float(n) for n, stop in enumerate(shown)}
        lines += _lines(rule, places, hovers)
        chosen = {(advice.stop.rule, advice.stop.value) for advice in stops.advice or ()}
        rings += _rings(rule, {stop: place for stop, place in places.items() if (stop.rule, stop.value) in chosen})
    for ring in rings[1:]:
        ring["showlegend"] = False
    ticks = [name if n % 3 == 0 else "" for n, name in enumerate(["none", *(f"{t:g}" for t in THRESHOLDS)])]
    bottom, heights = ("y3", [(0.62, 1), (0.33, 0.55), (0, 0.26)]) if stops.machine else ("y2", [(0.42, 1), (0, 0.34)])
    lengths = {"showgrid": False, "range": [0.5, whole.value + 0.5], "dtick": max(1, round(whole.value / 5))}
    axes = {
        "xaxis": places_axis(ticks, "threshold", anchor=bottom, domain=[0, 0.56]),
        "xaxis2": axis("drafted tokens", anchor=bottom, domain=[0.6, 1], **lengths),
        "yaxis": axis("α", domain=heights[0], nticks=6),
        "yaxis2": axis("nodes", domain=heights[1], rangemode="tozero", nticks=4),
    }
    if stops.machine:
        ends = [end for s in stops.stops for end in (s.slowdown.low, s.slowdown.high) if end is not None]
        span = [min(ends, default=0.9) - 0.05, min(MOST_TIME, max(ends, default=1.1) + 0.02)]
        axes["yaxis3"] = axis("time/token", domain=heights[2], nticks=4, tickformat=".0%", range=span)
    height = 460 if stops.machine else 360
    figure = draw([*lines, *rings], height=height, margin={"l": 46, "b": 90}, **axes)
    return Panel("stops", "Where should drafting stop?", f"{verdict(stops).text} {caption(stops)}", figure, table)


def _rows(rule: str, places: Mapping[Stop, float]) -> Iterator[tuple[Properties, list[Any]]]:
    """Yields, for each row of the plot, the axes of a rule's traces and the values to plot. Rows with unknown values are left out.

    places: place of each stop on the x axis.
    """
    rows = {"y": [s.alpha for s in places], "y2": [s.nodes for s in places], "y3": [s.slowdown for s in places]}
    for yaxis, figures in rows.items():
        if figures and all(figure.value is not None for figure in figures):
            yield {"xaxis": "x2" if rule == "length" else "x", "yaxis": yaxis}, figures


def _lines(rule: str, places: Mapping[Stop, float], hovers: Mapping[Stop, str]) -> Iterator[Properties]:
    """Yields the line of a rule in each row of the plot. places: as for ``_rows``; hovers: hover text of each stop."""
    name, colour, dash, symbol = LOOKS[rule]
    for axes, figures in _rows(rule, places):
        yield scatter(
            "lines+markers",
            [*places.values()],
            values_of(figures),
            [hovers[stop] for stop in places],
            name=name,
            legendgroup=rule,
            showlegend=axes["yaxis"] == "y",
            line={"color": COLOURS[colour], "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 6, "color": COLOURS[colour]},
            **axes,
            **whiskers(figures, color=EDGE, thickness=1, width=2),
        )


def _rings(rule: str, places: Mapping[Stop, float]) -> Iterator[Properties]:
    ring = {"symbol": "circle-open", "size": 14, "color": INK, "line": {"width": 1.5}}
    for axes, figures in _rows(rule, places):
        options = {"name": CHOSEN, "legendgroup": CHOSEN, "marker": ring, **axes}
        yield scatter("markers", [*places.values()], values_of(figures), **options)
