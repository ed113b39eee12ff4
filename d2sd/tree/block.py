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
    """Drafted tokens below the anchor, after ``prefix`` given ones of candidate ``base`` (see ``trace.events.Draft``).

    confidence[j]: drafter's probability of ids[j]; tokens[j], probabilities[j]: its most likely tokens there, best
    first, as many as were asked for; logs[j]: the natural logarithms of these probabilities, which tell apart even those that
    are 0 as numbers (empty where only probabilities are known).
    trained[j]: the probability that ids[j] is accepted if all before it are, as a head of the drafter says that was trained to
    say it; empty where there is none. tempered[j]: the probability of ids[j] at other temperatures (``trace.events.TEMPERATURES``);
    empty where nothing is inspected. after: for drafters that know it, what may follow a token, given the drafted position
    (from 0) and the token before it.
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
