"""Sentences about several drafters on the same texts."""

from __future__ import annotations

from collections.abc import Sequence

from d2sd.calibration.replays import Replayed, Row
from d2sd.calibration.resampling import MIN_UNITS
from d2sd.calibration.sentences import with_interval

SHOWN_POSITIONS = 8


def lines(row: Row) -> list[str]:
    """Returns lines with a drafter's figures: in total, by prompt group, by position."""
    shares = ", ".join(f"{k}: {f.value:.0%}" for k, f in enumerate(row.reached[:SHOWN_POSITIONS], 1))
    groups = [f"  {kind}: {_words(found)}" for kind, found in row.groups.items()]
    return [
        f"{row.name}: {_words(row.whole)}",
        *groups,
        f"  accepted by position (of the steps that got there, as far as the text goes): {shares or '–'}",
    ]


def _words(found: Replayed) -> str:
    words = f"α {with_interval(found.alpha)}, {found.steps} steps"
    return words if found.difference is None else f"{words}; {with_interval(found.difference, '+')} against the first"


def how_replayed(rows: Sequence[Row], texts: int) -> str:
    """Returns an explanation of the brackets in ``lines``."""
    if texts < MIN_UNITS:
        return f"Intervals take at least {MIN_UNITS} texts."
    if len(rows) == 1:
        return "Brackets: 95% bootstrap interval over texts."
    return "Brackets: 95% bootstrap intervals over texts; those of the differences hold all together (Bonferroni)."
