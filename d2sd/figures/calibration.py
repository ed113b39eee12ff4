"""The results of a calibration as the page and the reports show them, and the figures of confidence against outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from d2sd.calibration import Bin, Estimate, Gathering, Report, Sentence, TrainedReport, read_report
from d2sd.calibration.alternatives import NAMES, read_trained
from d2sd.calibration.boundaries import Expectations, GainBin, Second, expectations
from d2sd.calibration.scores import KINDS, PositionAcceptance
from d2sd.calibration.sentences import Write, change, count, digits, hundredths, percent, signed, with_interval
from d2sd.figures.boundaries import gains_panel, groups_panel, matrix_panel, ranks_panel, temperature_panel
from d2sd.figures.style import (
    BAR,
    COLOURS,
    EDGE,
    FEW,
    INK,
    PANEL,
    Panel,
    Stat,
    Table,
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

EDGES = 9  # more numbers than this do not fit side by side under a figure
COUNTS = 0.13  # the part of the height that tells how many there are
OPEN_END = 1000.0  # a bin up to more tokens than that has no upper edge


@dataclass(frozen=True, slots=True)
class Results:
    """Sentences, headline figures and panels of runs."""

    reading: tuple[Sentence, ...]
    stats: tuple[Stat, ...]
    panels: tuple[Panel, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns them as data for a page, ready for orjson."""
        panels = [panel.to_dict() for panel in self.panels]
        return {"reading": self.reading, "stats": self.stats, "panels": panels}


def calibration_results(runs: Gathering) -> Results:
    """Returns what is shown of these runs."""
    report = runs.report()
    return Results(
        tuple(read_report(report)),
        tuple(headline(report, expectations(runs.counted().table))),
        tuple(calibration_panels(report, runs.trained())),
    )


def headline(report: Report, decided: Expectations | None = None) -> Iterator[Stat]:
    """Returns the headline figures; ``decided``: of cost-aware runs."""
    yield Stat(
        "Scored positions",
        f"{report.positions:,}",
        f"{count(report.runs, 'run')}, {count(report.steps, 'step')}",
        "Drafted tokens up to and including the first rejection of each step: later ones were never judged.",
    )
    known = report.confidence is not None
    gap = "" if report.gap.low is None else f"gap {signed(report.gap.value)} ({_range(report.gap, signed)})"
    yield Stat(
        "Says → accepted",
        f"{percent(report.confidence)} → {percent(report.accepted)}" if known else "—",
        gap,
        "Mean confidence of the scored tokens, and the share of them that the target accepted. The gap is in percentage points.",
    )
    chance = f"; chance {digits(report.chance)}" if known else ""
    yield Stat(
        "ECE",
        digits(report.error.value),
        f"{_range(report.error)}{chance}" if known else "",
        "Expected calibration error: how far acceptance is from confidence, averaged over ten bins of equal width. 0 is "
        "perfect. “Chance” is what an honest drafter would show with as few tokens.",
    )
    yield Stat(
        "Adaptive ECE",
        digits(report.adaptive.value),
        _range(report.adaptive) if known else "",
        "The same over ten bins with equally many tokens.",
    )
    yield Stat(
        "Brier score",
        digits(report.brier.value),
        _range(report.brier) if known else "",
        "Mean squared distance between confidence and outcome (0 or 1). 0 is perfect.",
    )
    yield from _boundary_stats(report)
    if decided is not None:
        yield Stat(
            "Tokens a step, expected → got",
            f"{decided.expected:.2f} → {decided.obtained:.2f}" if decided.steps else "—",
            f"{count(decided.steps, 'drafting step')}, {decided.plain} plain",
            "Of cost-aware steps that drafted: expected and actual committed tokens with the verified tree.",
        )


def _boundary_stats(report: Report) -> Iterator[Stat]:
    ranks = report.ranks
    if ranks.repaired.value is None:
        top = ranks.within[min(3, len(ranks.within) - 1)] if ranks.within else Estimate(None)
        yield Stat(
            "Boundary in top 4",
            percent(top.value),
            f"{_range(top, percent)} of {count(ranks.steps, 'step')}" if top.value is not None else "",
            "How often the place where the first draft was rejected was among the four likeliest boundaries.",
        )
        return
    found = "" if ranks.used.value is None else f"; boundary found in {percent(ranks.used.value)}"
    yield Stat(
        "Repaired",
        percent(ranks.repaired.value),
        f"{_range(ranks.repaired, percent)} of {count(ranks.chosen, 'step')}{found}",
        "Of the drafts that were partly rejected: how often a re-draft began exactly there and added tokens.",
    )
    per = report.gains.per_redraft
    yield Stat(
        "Tokens per re-draft",
        digits(per.value),
        _range(per) if per.value is not None else "",
        "Tokens that the drafts after the first added, divided by the number of those drafts.",
    )


def _range(figure: Estimate, write: Write = digits) -> str:
    return "no interval" if figure.low is None else f"{write(figure.low)} to {write(figure.high)}"


def calibration_panels(report: Report, trained: TrainedReport | None = None) -> Iterator[Panel]:
    """Yields every figure of a report that has data, in reading order.

    trained: figures of the confidence head, for drafters that have one.
    """
    if not report.steps:
        return
    question = "Of the tokens drafted with this confidence, how many does the target accept?"
    yield _columns("uniform", "Reliability", question, reliability(report.uniform), bin_columns(report.uniform))
    masses = bin_columns(report.equal_mass)
    yield _columns("equal_mass", "Reliability, equal mass", question, reliability(report.equal_mass), masses)
    if trained is not None:
        yield _trained(trained)
    question = "Of the drafts that got as far as this position, how many had this token accepted?"
    positions = position_columns(report.by_position)
    yield _columns("positions", "By position", question, by_position(report.by_position), positions)
    if report.matrix.all_happened.value is not None:
        yield matrix_panel(report)
        yield ranks_panel(report)
    yield gains_panel(report)
    if report.advice is not None:
        yield temperature_panel(report)
    if report.second is not None and report.second.positions:
        yield _second(report.second)
    if report.second is not None and any(b.count for b in report.second.gains):
        yield _promise(report.second)
    if report.domains:
        yield groups_panel("domain", "By prompt group", report.domains, list(range(len(report.domains))))
    if report.kinds:
        yield groups_panel("kind", "By kind of token", report.kinds, [KINDS.index(g.name) for g in report.kinds])


# Columns of confidence or position, and of expected gain: what was predicted against what happened.


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a figure.

    place: along the axis, and its mark.
    count: number of positions or re-drafts.
    predicted: mean confidence or expected gain; None: not recorded.
    observed: accepted share or gain.
    words: the text of its bar.
    """

    place: int
    name: str
    count: int
    predicted: float | None
    observed: Estimate
    words: str


def _columns(id: str, title: str, question: str, figure: go.Figure, columns: Sequence[Column]) -> Panel:
    rows = tuple(
        (
            c.name,
            (f"{c.count}", c.place),
            digits(c.predicted),
            digits(c.observed.value),
            f"{digits(c.observed.low)}–{digits(c.observed.high)}",
        )
        for c in columns
    )
    head = ("Position" if id == "positions" else "Confidence", "Positions", "Says", "Accepted", "95% interval")
    before = {"second": "Second drafter says", "positions": "Position"}.get(id, "Confidence")
    return Panel(id, title, question, figure, Table(head, rows), {c.place: f"{before} {c.name}" for c in columns})


def _trained(trained: TrainedReport) -> Panel:
    rows = tuple(
        (
            f"{NAMES[c.name][:1].upper()}{NAMES[c.name][1:]}",
            digits(c.softmax.value),
            digits(c.head.value),
            with_interval(c.difference, change),
        )
        for c in trained.contests
    )
    columns = bin_columns(trained.head)
    against = read_trained(trained).get("auroc", "")
    return Panel(
        "head",
        "Confidence head",
        f"Of the tokens about which the trained head says this, how many does the target accept? {against}".strip(),
        reliability(trained.head),
        Table(("Figure", "Softmax", "Head", "Difference (95% interval)"), rows),
        {c.place: f"Head says {c.name}" for c in columns},
    )


def _second(second: Second) -> Panel:
    gap = "" if second.gap.low is None else f", gap {with_interval(second.gap, signed)} points"
    question = (
        f"Of {count(second.redrafts, 're-draft')}, {second.right} had a right prefix. Of their tokens, up to the first wrong one, "
        f"it says {percent(second.confidence)} and {percent(second.accepted)} are accepted{gap}; ECE {with_interval(second.error, digits)}."
    )
    figure = reliability(second.uniform, "second")
    return _columns("second", "Second drafter’s confidence", question, figure, bin_columns(second.uniform))


def _promise(second: Second) -> Panel:
    columns = promise_columns(second.gains)
    rows = tuple(
        (c.name, (f"{c.count}", c.place), digits(c.predicted), with_interval(c.observed, digits)) for c in columns
    )
    return Panel(
        "promise",
        "Gained against promised",
        "A re-draft from prefix i promises r(i) · (c₁ + c₁c₂ + …) tokens.",
        promise(second.gains),
        Table(("Promised", "Re-drafts", "Mean promised", "Mean gained"), rows),
        {c.place: f"Re-drafts that promised {c.name} tokens" for c in columns},
    )


def reliability(bins: Sequence[Bin], kind: str = "first") -> go.Figure:
    """The reliability diagram of these bins of confidence; ``kind``: whose confidence it is, "first" or "second"."""
    edges = [*(b.left for b in bins), 1.0]
    scale: dict[str, Any] = {
        "tickvals": [n - 0.5 for n in range(len(edges))],
        "ticktext": ["" if n % 2 and len(edges) > EDGES else edge_name(e) for n, e in enumerate(edges)],
    }
    return _column_figure(bin_columns(bins), kind, "confidence", range=[-0.5, len(bins) - 0.5], **scale)


def by_position(positions: Sequence[PositionAcceptance]) -> go.Figure:
    """Acceptance at every position of the first draft that was reached."""
    last = max((p.position for p in positions), default=1)
    ends: dict[str, Any] = {"range": [0.5, last + 0.5], "dtick": 1 if last <= EDGES else 2 if last <= 20 else 5}
    return _column_figure(position_columns(positions), "first", "position in the draft", **ends)


def promise(bins: Sequence[GainBin]) -> go.Figure:
    """Actual against expected gain of re-drafts, in tokens, by bin of expected gain."""
    columns = promise_columns(bins)
    most = max([0.1, *(max(c.predicted or 0.0, c.observed.value or 0.0, c.observed.high or 0.0) for c in columns)])
    scale: dict[str, Any] = {"tickvals": [c.place for c in columns], "ticktext": [c.name for c in columns]}
    words = ("promised", "gained", "promised")
    ends = [columns[0].place - 0.5, columns[-1].place + 0.5] if columns else [-0.5, 0.5]
    figure = _column_figure(columns, "second", "tokens promised", words, range=ends, **scale)
    return figure.update_layout(yaxis={"range": [0, most * 1.06], "tickvals": None, "tickformat": ""})


def bin_columns(bins: Sequence[Bin]) -> list[Column]:
    """Returns non-empty bins as columns."""
    named = [(n, b, f"{edge_name(b.left)}–{edge_name(b.right)}") for n, b in enumerate(bins) if b.count]
    return [
        Column(n, name, b.count, b.confidence, Estimate(b.accepted, b.low, b.high), _words(f"Confidence {name}", b))
        for n, b, name in named
    ]


def position_columns(positions: Sequence[PositionAcceptance]) -> list[Column]:
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
            gained = with_interval(b.gained, hundredths)
            words = f"Promised {name} tokens: {count(b.count, 're-draft')}<br>promised {b.predicted:.2f} and gained {gained} on average"
            out.append(Column(n, name, b.count, b.predicted, b.gained, words))
    return out


def edge_name(edge: float) -> str:
    """Returns a bin edge in few characters."""
    places = 2 if edge in (0, 1) or 0.005 <= edge < 0.995 else 3
    return f"{edge:.{places}f}".rstrip("0").rstrip(".") or "0"


def _words(name: str, b: Bin | PositionAcceptance) -> str:
    few = "<br>too few to say" if b.count < FEW else ""
    between = f"{percent(b.low)} to {percent(b.high)}"
    return f"{name}: {count(b.count, 'position')}<br>says {percent(b.confidence)}, {percent(b.accepted)} accepted ({between}){few}"


def _column_figure(
    columns: list[Column], kind: str, title: str, words: Sequence[str] = ("says", "accepted", "confident"), **scale: Any
) -> go.Figure:
    """Bars of what happened with their intervals, diamonds of what was said, the gap between them, and counts below.

    ``words``: what the two and a gap are called; ``scale``: options of the axis across.
    """
    said, came, sure = words
    at = [c.place for c in columns]

    def happened(name: str, shown: list[Column], faint: bool) -> Trace:
        marks, found = [c.place for c in shown], [c.observed for c in shown]
        options = {"name": name, "width": BAR, "customdata": marks, **whiskers(found)}
        return bars(marks, values_of(found), fill(kind, faint), [c.words for c in shown], **options)

    def gap(name: str, colour: str, shape: str, shown: list[Column]) -> Trace:
        ends = [(c.predicted or 0.0, c.observed.value or 0.0) for c in shown]
        dark, light = COLOURS[colour], COLOURS["sunken"]
        pattern = {"shape": shape, "fgcolor": dark, "bgcolor": light, "size": 5, "solidity": 0.4}
        marker = {"color": dark, "opacity": 0.85, "pattern": pattern, "line": {"color": dark, "width": 1}}
        sizes, base = [max(e) - min(e) for e in ends], [min(e) for e in ends]
        return bars([c.place for c in shown], sizes, marker, name=name, width=BAR, base=base)

    many, few = ([c for c in columns if (c.count < FEW) == faint] for faint in (False, True))
    known = [(c, c.predicted > (c.observed.value or 0.0)) for c in columns if c.predicted is not None]
    over, under = [[c for c, sure_of in known if sure_of == side] for side in (True, False)]
    traces = [
        *([happened(came, many, faint=False)] if many else []),
        *([happened(f"n < {FEW}", few, faint=True)] if few else []),
        gap(f"over-{sure}", "reject", "/", over),
        gap(f"under-{sure}", "muted", ".", under),
        scatter(
            "lines+markers",
            at,
            [c.predicted for c in columns],
            name=said,
            line={"color": INK, "width": 1.25, "dash": "dash"},
            marker={"symbol": "diamond", "size": 8, "color": PANEL, "line": {"color": INK, "width": 1.5}},
        ),
        bars(at, [c.count for c in columns], {"color": EDGE}, width=BAR, yaxis="y2", showlegend=False),
    ]
    most = max((c.count for c in columns), default=1)
    count: dict[str, Any] = {"tickvals": [most / 2], "ticktext": [f"n ≤ {most}"], "range": [0, most * 1.02]}
    below = axis(domain=[0, COUNTS], showgrid=False, fixedrange=True, **count)
    return draw(
        traces,
        hovermode="x",
        legend_entrywidth=104,
        xaxis=axis(title, showgrid=False, anchor="y2", **scale),
        yaxis=share_axis(domain=[COUNTS + 0.08, 1]),
        yaxis2=below,
    )
