"""A drafted block: the result of every drafter and the input of token trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, log
from typing import Any, Literal

DrafterName = Literal["first", "second"]
Ranked = tuple[Sequence[int], Sequence[float], Sequence[float]]  # tokens, probabilities, their logarithms, best first


@dataclass(frozen=True, slots=True)
class Block:
    """A draft: tokens after the first ``prefix`` tokens of draft number ``base`` (see ``trace.events.Draft``).

    All sequences have one entry per drafted token.

    confidence: the drafter's probability of the token.
    tokens, probabilities: the drafter's likeliest tokens at the drafted token's position, and their probabilities, best first.
    logs: natural logarithms of ``probabilities``; they still distinguish tokens whose probabilities underflow to 0; empty if
        unknown.
    trained: output of a trained confidence head: the probability that the token is accepted if all earlier tokens are; empty
        without a head.
    tempered: the token's probability at other temperatures (``trace.events.TEMPERATURES``); empty if not inspected.
    after: returns the distribution at a drafted position (from 0), given the previous token; None if positions are independent.
    whole: returns the probabilities of the target's whole vocabulary at a drafted position, a tensor (V,); None if not kept.
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
    whole: Callable[[int], Any] | None = field(default=None, compare=False)

    @property
    def scores(self) -> Sequence[Sequence[float]]:
        """``logs``; if empty, the logarithms of ``probabilities``."""
        return self.logs or [[log(p) if p > 0 else -inf for p in row] for row in self.probabilities]
