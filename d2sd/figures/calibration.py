"""Results of a calibration for the page and the reports, and figures of confidence and acceptance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import plotly.graph_objects as go

from d2sd.calibration import Bin, Estimate, Report, RunStatistics, Sentence, read_report
from d2sd.calibration.boundaries import Second
from d2sd.calibration.scores import PositionAcceptance
from d2sd.calibration.sentences import Write, count, digits, percent
from d2sd.figures.boundaries import gains_panel, groups_panel, matrix_panel, ranks_panel
from d2sd.figures.style import (
    BAR,
    COLOURS,
    EDGE,
    FEW,
    INK,
    PANEL,
    FigureTable,
    Legend,
    Panel,
    Stat,
    Trace,
    axis,
    bars,
    draw,
    fill,
    scatter,
    share_axis,
    values_of,
    whiskers,
)
from d2sd.figures.thresholds import stop_sentences, stops_panel

COUNTS = 0.13  # share of a figure's height for the bars of counts


@dataclass(frozen=True, slots=True)
class CalibrationFigures:
    """The parts of a calibration that the page and the reports show.

    reading: sentences, the verdict first.
    stats: headline numbers.
    panels: the plots with their tables.
    """

    reading: tuple[Sentence, ...]
    stats: tuple[Stat, ...]
    panels: tuple[Panel, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as JSON-ready data."""
        panels = [panel.to_dict() for panel in self.panels]
        return {"reading": self.reading, "stats": self.stats, "panels": panels}


def calibration_results(runs: RunStatistics) -> CalibrationFigures:
    """Returns the sentences and figures about measured runs.

    runs: the statistics of the runs.
    """
    report = runs.report()
    reading = *read_report(report), *stop_sentences(report.stops, report.head is not None)
    return CalibrationFigures(reading, tuple(headline(report)), tuple(calibration_panels(report)))


def headline(report: Report) -> Iterator[Stat]:
    known = f"{_range(report.ece)}; chance {digits(report.chance)}"
    yield Stat(
        "ECE",
        digits(report.ece.value),
        "" if report.confidence is None else known,
        "Expected calibration error: the mean absolute difference between confidence and acceptance over ten bins of equal width. 0 is "
        "perfect. “Chance” is the error that a perfectly calibrated drafter would show with the same number of tokens.",
    )
    ranks = report.ranks
    if ranks.repaired.value is None:
        return
    found = "" if ranks.used.value is None else f"; boundary found in {percent(ranks.used.value)}"
    yield Stat(
        "Repaired",
        percent(ranks.repaired.value),
        f"{_range(ranks.repaired, percent)} of {count(ranks.chosen, 'step')}{found}",
        "Share of steps in which a re-draft began exactly at the rejection boundary and added tokens. Only steps with re-drafts and a "
        "rejected token of the first draft count.",
    )
    per = report.gains.per_redraft
    yield Stat(
        "Tokens per re-draft",
        digits(per.value),
        _range(per) if per.value is not None else "",
        "Tokens added by re-drafts, divided by the number of re-drafts.",
    )


def _range(figure: Estimate, write: Write = digits) -> str:
    return "no interval" if figure.low is None else f"{write(figure.low)} to {write(figure.high)}"


def calibration_panels(report: Report) -> Iterator[Panel]:
    """Yields the panels of a report in reading order. Panels without data are left out.

    report: result of ``d2sd.calibration.calibrate``.
    """
    if not report.steps:
        return
    question = "Of the tokens drafted with this confidence, how many does the target accept?"
    occurring = _occurring([*report.uniform, *report.by_position])
    yield _reliability("uniform", "Reliability", question, report.uniform, occurring)
    yield _by_position(report.by_position)
    if any(map(any, report.matrix.counts)):
        yield matrix_panel(report)
        yield ranks_panel(report)
    if report.stops is not None:
        yield stops_panel(report.stops)
    yield gains_panel(report)
    if report.second is not None and report.second.positions:
        yield _second(report.second)
    if report.domains:
        yield groups_panel(report.domains)


# Confidence and acceptance, by bin of confidence or by position.


@dataclass(frozen=True, slots=True)
class FigureColumn:
    """One column of a figure: a bin of confidence, or a position in the draft.

    place: the column's coordinate on the x axis; also identifies the column's mark in ``Panel.names``.
    words: hover text of the column's bar.
    """

    place: int
    name: str
    count: int
    confidence: float | None
    accepted: Estimate
    words: str


def _panel(id: str, title: str, question: str, figure: go.Figure, columns: Sequence[FigureColumn], name: str) -> Panel:
    """Returns the panel of these columns. ``name``: prefix of the marks' names."""
    rows = tuple(
        (
            c.name,
            (f"{c.count}", c.place),
            digits(c.confidence),
            digits(c.accepted.value),
            f"{digits(c.accepted.low)}–{digits(c.accepted.high)}",
        )
        for c in columns
    )
    head = (
        "Position" if id == "positions" else "Confidence",
        "Positions",
        "Mean confidence",
        "Accepted",
        "95% interval",
    )
    return Panel(id, title, question, figure, FigureTable(head, rows), {c.place: f"{name} {c.name}" for c in columns})


def _second(second: Second) -> Panel:
    question = (
        f"{second.right} of {count(second.redrafts, 're-draft')} had a correct prefix. Only these re-drafts count, up to their first rejected token. "
        "Of their tokens with this confidence, how many does the target accept?"
    )
    title = "Second drafter’s confidence"
    return _reliability("second", title, question, second.uniform, _occurring(second.uniform), title)


def _occurring(columns: Sequence[Bin | PositionAcceptance]) -> Legend:
    """Returns the marks that occur in columns, for the legend."""
    counted = [c for c in columns if c.count]
    over = {(c.confidence or 0.0) > (c.accepted or 0.0) for c in counted if c.confidence is not None}
    occurs = {
        "accepted": any(c.count >= FEW for c in counted),
        "few": any(c.count < FEW for c in counted),
        "over-confident": True in over,
        "under-confident": False in over,
        "confidence": bool(over),
    }
    return tuple((look, f"n < {FEW}" if look == "few" else look) for look, there in occurs.items() if there)


def _reliability(
    id: str, title: str, question: str, bins: Sequence[Bin], legend: Legend, name: str = "Confidence"
) -> Panel:
    """Returns the reliability diagram of these bins.

    id: "second" for the second drafter.
    legend: the marks in the legend, which also explains the neighbouring figure.
    """
    columns = [_column(n, f"{b.left:g}–{b.right:g}", "Confidence", b) for n, b in enumerate(bins) if b.count]
    edges = [*(b.left for b in bins), 1.0]
    scale: dict[str, Any] = {
        "tickvals": [n - 0.5 for n in range(len(edges))],
        "ticktext": ["" if n % 2 else f"{e:g}" for n, e in enumerate(edges)],  # not all labels fit
        "range": [-0.5, len(bins) - 0.5],
    }
    figure = _column_figure(columns, "second" if id == "second" else "first", "confidence", **scale)
    return replace(_panel(id, title, question, figure, columns, name), legend=legend)


def _by_position(positions: Sequence[PositionAcceptance]) -> Panel:
    columns = [_column(p.position, f"{p.position}", "Position", p) for p in positions]
    last = max((c.place for c in columns), default=1)
    scale: dict[str, Any] = {"range": [0.5, last + 0.5], "dtick": 1 if last < 10 else 2}
    figure = _column_figure(columns, "first", "position in the draft", **scale)
    question = "If all earlier tokens of a draft are accepted, how often is the token at this position accepted too?"
    return _panel("positions", "By position", question, figure, columns, "Position")


def _column(place: int, name: str, kind: str, of: Bin | PositionAcceptance) -> FigureColumn:
    few = "<br>too few to judge" if of.count < FEW else ""
    between = f"{percent(of.low)} to {percent(of.high)}"
    words = f"{kind} {name}: {count(of.count, 'position')}<br>mean confidence {percent(of.confidence)}, accepted {percent(of.accepted)} ({between}){few}"
    return FigureColumn(place, name, of.count, of.confidence, Estimate(of.accepted, of.low, of.high), words)


def _column_figure(columns: Sequence[FigureColumn], kind: str, title: str, **scale: Any) -> go.Figure:
    """Draws accepted shares as bars with intervals, mean confidence as diamonds, the gap between both, and counts below. Everything
    about fewer than ``FEW`` positions is pale.

    scale: options of the x axis.
    """
    at = [c.place for c in columns]

    def accepted(faint: bool) -> Trace:
        shown = [c for c in columns if (c.count < FEW) == faint]
        marks, found = [c.place for c in shown], [c.accepted for c in shown]
        options = {"width": BAR, "customdata": marks, **whiskers(found, color=EDGE if faint else INK)}
        return bars(marks, values_of(found), fill(kind, faint), [c.words for c in shown], **options)

    def gap(colour: str, shape: str, over: bool) -> Trace:
        shown = [c for c in columns if c.confidence is not None and (c.confidence > (c.accepted.value or 0.0)) == over]
        ends = [(c.confidence or 0.0, c.accepted.value or 0.0) for c in shown]
        dark, light = COLOURS[colour], COLOURS["sunken"]
        pattern = {"shape": shape, "fgcolor": dark, "bgcolor": light, "size": 5, "solidity": 0.4}
        strength = [0.25 if c.count < FEW else 0.85 for c in shown]
        marker = {"color": dark, "opacity": strength, "pattern": pattern, "line": {"color": dark, "width": 1}}
        sizes, base = [max(e) - min(e) for e in ends], [min(e) for e in ends]
        return bars([c.place for c in shown], sizes, marker, width=BAR, base=base)

    edges = [EDGE if c.count < FEW else INK for c in columns]
    traces = [
        accepted(faint=False),
        accepted(faint=True),
        gap("reject", "/", over=True),
        gap("muted", ".", over=False),
        scatter(
            "lines+markers",
            at,
            [c.confidence for c in columns],
            line={"color": INK, "width": 1.25, "dash": "dash"},
            marker={"symbol": "diamond", "size": 8, "color": PANEL, "line": {"color": edges, "width": 1.5}},
        ),
        bars(at, [c.count for c in columns], {"color": EDGE}, width=BAR, yaxis="y2"),
    ]
    most = max((c.count for c in columns), default=1)
    count: dict[str, Any] = {"tickvals": [most / 2], "ticktext": [f"n ≤ {most}"], "range": [0, most * 1.02]}
    below = axis(domain=[0, COUNTS], showgrid=False, fixedrange=True, **count)
    return draw(
        traces,
        hovermode="x",
        margin={"l": 44, "r": 12, "t": 12, "b": 44},
        showlegend=False,  # ``Panel.legend`` instead
        xaxis=axis(title, showgrid=False, anchor="y2", **scale),
        yaxis=share_axis(domain=[COUNTS + 0.08, 1]),
        yaxis2=below,
    )
