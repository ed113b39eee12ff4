"""The headline figures of a report, each with an explanation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2sd.calibration import Estimate, Report
from d2sd.calibration.decisions import Expectations
from d2sd.calibration.sentences import count
from d2sd.figures.style import Write, digits, percent, signed


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
