"""Totals of a request without per-step records: one row of figures, and which figures are unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Totals:
    """Figures of one request; None if unknown.

    mean_acceptance_length: α, accepted tokens and the bonus token per step.
    by_position: [k]: share of all steps in which drafted token k + 1 was accepted; known if all steps drafted equally many.
    unknown: a sentence about what the log lacks.
    """

    engine: str
    tokens: int | None
    steps: int | None
    drafted: int | None
    accepted: int | None
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    by_position: tuple[float, ...]
    tokens_per_second: float | None
    unknown: str

    def row(self) -> str:
        """Returns the figures as one line of text."""
        parts = [self.engine]
        if self.tokens is not None:
            parts.append(f"{self.tokens} tokens")
        if self.steps is not None:
            parts.append(f"{self.steps} steps")
        rate = "" if self.acceptance_rate is None else f"{self.acceptance_rate:.1%}"
        if self.accepted is not None:
            drafted = "?" if self.drafted is None else self.drafted
            parts.append(f"{self.accepted} of {drafted} drafted tokens accepted{rate and f' ({rate})'}")
        elif rate:
            parts.append(f"{rate} of the drafted tokens accepted")
        if self.mean_acceptance_length is not None:
            parts.append(f"α {self.mean_acceptance_length:.2f}")
        if self.tokens_per_second is not None:
            parts.append(f"{self.tokens_per_second:.1f} tokens/s")
        return ", ".join(parts) + self._positions()

    def _positions(self) -> str:
        shares = ", ".join(f"{k}: {share:.0%}" for k, share in enumerate(self.by_position, 1))
        return f", accepted up to position {shares}" if shares else ""


def together(rows: Sequence[Totals]) -> dict[str, Any]:
    """Returns the rows of several requests as one: sums, and means over all of their steps and tokens."""

    def total(name: str) -> int | None:
        values = [getattr(row, name) for row in rows]
        return None if None in values else sum(values)

    accepted, drafted, steps = total("accepted"), total("drafted"), total("steps")
    alphas = [row.mean_acceptance_length for row in rows]
    alpha = 1 + accepted / steps if steps and accepted is not None else None
    if alpha is None and steps and None not in alphas:  # of each the mean alone is known, over so many steps
        alpha = sum((a or 0.0) * (row.steps or 0) for a, row in zip(alphas, rows, strict=True)) / steps
    return {
        "requests": len(rows),
        "tokens": total("tokens"),
        "steps": steps,
        "drafted": drafted,
        "accepted": accepted,
        "acceptance_rate": accepted / drafted if drafted and accepted is not None else None,
        "mean_acceptance_length": alpha,
    }
