"""Panels: a figure with its title, question, the same numbers as a table, and names of its marks.

The page and the reports show the same panels. Marks and table cells have an index by which the page lists their steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import plotly.graph_objects as go

from d2sd.calibration import Estimate, Report, TrainedReport
from d2sd.calibration.boundaries import Expectations, Second
from d2sd.calibration.comparison import Comparison, Difference
from d2sd.calibration.report import Curves
from d2sd.calibration.scores import KINDS, Group
from d2sd.calibration.sentences import count
from d2sd.calibration.trained import NAMES, read_trained
from d2sd.costs.machines import MACHINES
from d2sd.figures.calibration import (
    OTHER,
    WHOLE,
    Column,
    advice_words,
    bin_columns,
    boundary_matrix,
    boundary_ranks,
    by_group,
    by_position,
    outcome_name,
    outcomes,
    position_columns,
    promise,
    promise_columns,
    reliability,
    second_drafter,
    shown_ranks,
    source_name,
    temperature,
    tokens_gained,
)
from d2sd.figures.comparison import (
    COMPARED,
    Recorded,
    Sweep,
    compared_figures,
    differences,
    how_written,
    looks,
    p_value,
    place_name,
    rank_curves,
    reliability_curves,
    sweep_reading,
    what_if,
    where,
)
from d2sd.figures.style import Write, change, cut, digits, percent, signed, with_interval

Cell = str | tuple[str, int]  # with a place: what lists its steps


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers of a figure; the first cell of a row names it."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """``id``: as ``Sentence.chart`` names it; ``names``: what the steps of a place are called."""

    id: str
    title: str
    question: str
    figure: go.Figure
    table: Table
    names: dict[int, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Returns the panel's data for a page, ready for orjson."""
        figure = orjson.Fragment(self.figure.to_json(engine="orjson"))
        table = {"head": self.table.head, "rows": self.table.rows}
        names = {str(place): name for place, name in self.names.items()}
        return {
            "id": self.id,
            "title": self.title,
            "question": self.question,
            "figure": figure,
            "table": table,
            "names": names,
        }


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
        yield _matrix(report)
        yield _ranks(report)
    yield _gains(report)
    if report.advice is not None:
        yield _temperature(report)
    if report.second is not None and report.second.positions:
        yield _second(report.second)
    if report.second is not None and any(b.count for b in report.second.gains):
        yield _promise(report.second)
    if report.domains:
        yield _groups("domain", "By prompt group", report.domains, list(range(len(report.domains))))
    if report.kinds:
        yield _groups("kind", "By kind of token", report.kinds, [KINDS.index(g.name) for g in report.kinds])


def _columns(id: str, title: str, question: str, figure: go.Figure, columns: Sequence[Column]) -> Panel:
    rows = tuple(
        (
            c.name,
            (f"{c.count}", c.place),
            digits(c.says),
            digits(c.gets.value),
            f"{digits(c.gets.low)}–{digits(c.gets.high)}",
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


def _matrix(report: Report) -> Panel:
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


def _ranks(report: Report) -> Panel:
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


def _gains(report: Report) -> Panel:
    gains = report.gains
    rows: list[tuple[Cell, ...]] = []
    names = {}
    for g in gains.sources:
        place = OTHER if g.branch is None else g.branch
        name = source_name(g)
        names[place] = f"{name[:1].upper()}{name[1:]} brought tokens"
        won: Cell = (count(g.won, "step"), place) if g.won else "no step"
        rows.append((name, with_interval(g.tokens, _two), f"{g.nodes:.1f}", percent(g.wasted), won))
    rows.append(("the target’s own token", _two(gains.bonus), "—", "—", "—"))
    rows.append(
        (
            "together (α)",
            with_interval(gains.tokens_per_step, _two),
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


def _temperature(report: Report) -> Panel:
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


def _second(second: Second) -> Panel:
    gap = "" if second.gap.low is None else f", gap {with_interval(second.gap, signed)} points"
    question = (
        f"Of {count(second.redrafts, 're-draft')}, {second.right} had a right prefix. Of their tokens, up to the first wrong one, "
        f"it says {percent(second.confidence)} and {percent(second.accepted)} are accepted{gap}; ECE {with_interval(second.error, digits)}."
    )
    return _columns(
        "second", "Second drafter’s confidence", question, second_drafter(second), bin_columns(second.uniform)
    )


def _promise(second: Second) -> Panel:
    columns = promise_columns(second.gains)
    rows = tuple((c.name, (f"{c.count}", c.place), digits(c.says), with_interval(c.gets, digits)) for c in columns)
    return Panel(
        "promise",
        "Gained against promised",
        "A re-draft from prefix i promises r(i) · (c₁ + c₁c₂ + …) tokens.",
        promise(second.gains),
        Table(("Promised", "Re-drafts", "Mean promised", "Mean gained"), rows),
        {c.place: f"Re-drafts that promised {c.name} tokens" for c in columns},
    )


def _groups(id: str, title: str, groups: Sequence[Group], places: Sequence[int]) -> Panel:
    rows: list[tuple[Cell, ...]] = []
    for place, g in zip(places, groups, strict=True):
        positions: Cell = (f"{g.positions}", place)
        of_steps = (
            with_interval(g.tokens, _two) if g.tokens else "—",
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


def _two(value: float | None) -> str:
    return digits(value, 2)


# Panels of comparisons: two sets of runs, and what-if results.


def comparison_panels(found: Comparison, a: Curves, b: Curves) -> Iterator[Panel]:
    """The differences between two sides, and the curves of both."""
    yield Panel(
        "differences",
        "B − A",
        "Every difference with its interval, each on a separate scale. It is clear if the interval excludes 0.",
        differences(found),
        _differences(
            compared_figures(found),
            [COMPARED[d.name][0] for d in compared_figures(found)],
        ),
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


def sweep_panels(sweeps: Sequence[Sweep], recorded: Recorded) -> Iterator[Panel]:
    """The figures of settings that were varied. Speedups are calculated, for an 8B model on every known machine."""
    look = looks(sweeps)
    for sweep in sweeps:
        rows = []
        for line in sweep.lines:
            for point in line.points[:1] if line.flat else line.points:
                value = f"{sweep.symbol} not used" if line.flat else f"{sweep.symbol} = {sweep.values[point.at]}"
                speedups = (digits(point.speedups.get(name), 2) for name in MACHINES)
                rows.append(
                    (value, line.method, f"{digits(point.alpha, 2)}{point.interval}", digits(point.nodes, 1), *speedups)
                )
        yield Panel(
            sweep.symbol,
            f"{sweep.label[:1].upper()}{sweep.label[1:]}",
            sweep_reading(sweep, recorded),
            what_if(sweep, recorded, look),
            Table(
                ("Setting", "Method", "α", "Nodes per step", *(f"× on {m.name}" for m in MACHINES.values())),
                tuple(rows),
            ),
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
        _, _, write, change = COMPARED.get(d.name, ("", "", percent, signed))
        says = "" if d.difference.low is None else "clear" if d.clear else "not clear"
        sides = (with_interval(d.a, write), with_interval(d.b, write))
        cells.append((name, f"{d.count_a}", f"{d.count_b}", *sides, with_interval(d.difference, change), says))
    return Table(("", "n of A", "n of B", "A", "B", "B − A (95% for all)", ""), tuple(cells))


# The headline figures of a report, each with an explanation.


@dataclass(frozen=True, slots=True)
class Stat:
    """A figure in words; ``note``: its interval or what it is over."""

    name: str
    value: str
    note: str
    meaning: str


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
    yield from _boundary(report)
    if decided is not None:
        yield Stat(
            "Tokens a step, expected → got",
            f"{decided.expected:.2f} → {decided.obtained:.2f}" if decided.steps else "—",
            f"{count(decided.steps, 'drafting step')}, {decided.plain} plain",
            "Of cost-aware steps that drafted: expected and actual committed tokens with the verified tree.",
        )


def _boundary(report: Report) -> Iterator[Stat]:
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
