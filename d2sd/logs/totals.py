"""Totals of a request whose steps are not in its log: one row of figures, and what cannot be known from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d2sd.logs.counts import Counts


@dataclass(frozen=True, slots=True)
class Totals:
    """Figures of one request; None: not known.

    mean_acceptance_length: α, accepted tokens and the bonus per step; by_position[k]: share of the steps in which drafted token
    k + 1 was accepted, of all steps, known where every step drafted equally many; unknown: what the log cannot say, in words.
    """

    engine: str
    tokens: int | None
    steps: int | None
    drafted: int | None
    accepted: int
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    by_position: tuple[float, ...]
    tokens_per_second: float | None
    unknown: str

    @classmethod
    def of(cls, counts: Counts) -> Totals:
        """The figures that the counts give."""
        steps, histogram = counts.steps, counts.histogram
        by_position: tuple[float, ...] = ()
        if steps and histogram and counts.longest and counts.num_drafted == steps * counts.longest:
            reached = [sum(histogram[k:]) for k in range(len(histogram))]
            by_position = tuple(n / steps for n in reached[1:])
        lacking = ["where in the text each step ended", "confidences"]
        if steps is None:
            lacking = ["how many steps there were, and so α", "acceptance by position", *lacking]
        elif not by_position:
            lacking = ["acceptance by position", *lacking]
        else:
            lacking = ["the order of the steps", *lacking]
        return cls(
            counts.engine,
            counts.completion,
            steps,
            counts.num_drafted,
            counts.num_accepted,
            counts.num_accepted / counts.num_drafted if counts.num_drafted else None,
            1 + counts.num_accepted / steps if steps else None,
            by_position,
            counts.completion / counts.seconds if counts.completion and counts.seconds else None,
            f"not in this log: {', '.join(lacking[:-1])} and {lacking[-1]}",
        )

    def row(self) -> str:
        """The figures in one line."""
        parts = [self.engine]
        if self.tokens is not None:
            parts.append(f"{self.tokens} tokens")
        if self.steps is not None:
            parts.append(f"{self.steps} steps")
        parts.append(f"{self.accepted} of {'?' if self.drafted is None else self.drafted} drafted tokens accepted")
        if self.acceptance_rate is not None:
            parts[-1] += f" ({self.acceptance_rate:.1%})"
        if self.mean_acceptance_length is not None:
            parts.append(f"α {self.mean_acceptance_length:.2f}")
        if self.tokens_per_second is not None:
            parts.append(f"{self.tokens_per_second:.1f} tokens/s")
        return ", ".join(parts) + self._positions()

    def _positions(self) -> str:
        shares = ", ".join(f"{k}: {share:.0%}" for k, share in enumerate(self.by_position, 1))
        return f", accepted up to position {shares}" if shares else ""


def together(rows: Sequence[Totals]) -> dict[str, Any]:
    """The rows of several requests as one: sums, and the means over all of their steps and tokens."""

    def total(name: str) -> int | None:
        values = [getattr(row, name) for row in rows]
        return None if None in values else sum(values)

    accepted, drafted, steps = sum(r.accepted for r in rows), total("drafted"), total("steps")
    return {
        "requests": len(rows),
        "tokens": total("tokens"),
        "steps": steps,
        "drafted": drafted,
        "accepted": accepted,
        "acceptance_rate": accepted / drafted if drafted else None,
        "mean_acceptance_length": 1 + accepted / steps if steps else None,
    }
