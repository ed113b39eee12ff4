"""What several drafters made of the same texts, in words."""

from __future__ import annotations

from collections.abc import Sequence

from d2sd.calibration.replays import Replayed, Row
from d2sd.calibration.resampling import MIN_UNITS, Figure

SHOWN_POSITIONS = 8


def lines(row: Row) -> list[str]:
    """A drafter's figures: in all, by prompt group, by position."""
    shares = ", ".join(f"{k}: {f.value:.0%}" for k, f in enumerate(row.reached[:SHOWN_POSITIONS], 1))
    groups = [f"  {kind}: {_words(found)}" for kind, found in row.groups.items()]
    return [
        f"{row.name}: {_words(row.whole)}",
        *groups,
        f"  accepted by position (of the steps that got there, but the last of a text): {shares or '–'}",
    ]


def _words(found: Replayed) -> str:
    words = f"α {_figure(found.alpha, '')}, {found.steps} steps"
    return words if found.difference is None else f"{words}; {_figure(found.difference, '+')} against the first"


def _figure(figure: Figure, sign: str) -> str:
    if figure.low is None or figure.high is None:
        return f"{figure.value:{sign}.2f}"
    return f"{figure.value:{sign}.2f} [{figure.low:{sign}.2f} to {figure.high:{sign}.2f}]"


def how_replayed(rows: Sequence[Row], texts: int) -> str:
    """What the brackets in ``lines`` are."""
    if texts < MIN_UNITS:
        return f"Intervals take at least {MIN_UNITS} texts."
    if len(rows) == 1:
        return "Brackets: 95% bootstrap interval over texts."
    return "Brackets: 95% bootstrap intervals over texts; those of the differences hold all together (Bonferroni)."
