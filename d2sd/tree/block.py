"""A drafted block: the result of every drafter and the input of token trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, log
from typing import Literal

DrafterName = Literal["first", "second"]
Ranked = tuple[Sequence[int], Sequence[float], Sequence[float]]  # tokens, probabilities, their logarithms, best first


@dataclass(frozen=True, slots=True)
class Block:
    """Drafted tokens below the anchor, after the first ``prefix`` tokens of candidate ``base`` (see ``trace.events.Draft``).

    confidence: [j]: the drafter's probability of ids[j].
    tokens, probabilities: [j]: the requested number of its likeliest tokens at that position and their probabilities, best first.
    logs: [j]: natural logarithms of these probabilities, which differ even if the probabilities underflow to 0; empty if
        unknown.
    trained: [j]: the probability that ids[j] is accepted, given that all earlier tokens are, from a trained confidence head;
        empty without one.
    tempered: [j]: the probability of ids[j] at other temperatures (``trace.events.TEMPERATURES``); empty if not inspected.
    after: maps a drafted position (from 0) and the previous token to the distribution there; None if the drafter has none.
    """

    drafter: DrafterName
    prefix: int
    ids: tuple[int, ...]
    confidence: tuple[float, ...]
    tokens: Sequence[Sequence[int]]
    probabilities: Sequence[Sequence[float]]
    base: int = 0
    logs: Sequence[Sequence[float]] = ()
    trained: tuple[float, ...] = ()
    tempered: tuple[tuple[float, ...], ...] = ()
    after: Callable[[int, int], Ranked] | None = field(default=None, compare=False)

    @property
    def scores(self) -> Sequence[Sequence[float]]:
        """Logarithms of the probabilities, from the drafter if it returned them."""
        return self.logs or [[log(p) if p > 0 else -inf for p in row] for row in self.probabilities]
