"""A drafted block: what drafters return, and what token trees are built from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, log
from typing import Any, Literal

DrafterName = Literal["first", "second"]
Ranked = tuple[Sequence[int], Sequence[float], Sequence[float]]  # tokens, probabilities, their logarithms, best first


@dataclass(frozen=True, slots=True)
class Block:
    """A draft: tokens that continue the first ``prefix`` tokens of another draft, whose number is ``base``.

    Draft number 0 is the first draft, whose prefix is empty (see ``trace.events.Draft``). All sequences have one entry per drafted
    token.

    ids: the drafted tokens.
    confidence: the drafter's probability of the token.
    tokens, probabilities: the drafter's likeliest tokens at the drafted token's position, and their probabilities, best first.
    logs: natural logarithms of ``probabilities``, which still distinguish tokens whose probabilities underflow to 0; empty if
        unknown.
    trained: output of a trained confidence head: the probability that the token is accepted if all earlier tokens are; empty
        without a head.
    tempered: the token's probability at other temperatures (``trace.events.TEMPERATURES``); empty if not inspected.
    after: function that returns the distribution at a drafted position (from 0), given the previous token; None if positions are
        independent.
    whole: function that returns the probabilities of all tokens of the target at a drafted position, a tensor (V,); None if not
        kept.
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
        """Natural logarithms of ``probabilities``: ``logs`` if they are known, otherwise computed."""
        return self.logs or [[log(p) if p > 0 else -inf for p in row] for row in self.probabilities]
