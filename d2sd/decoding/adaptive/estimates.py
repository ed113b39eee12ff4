"""Expected accepted tokens of drafts: discounted counts with a prior. Plain floats; nothing is random."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import exp
from operator import mul


class AcceptanceByDepth:
    """Conditional acceptance probability of a drafted token by depth, given that all tokens before it were accepted.

    The prior of a depth counts as ``WEIGHT`` observations. It is ``usual`` at that depth, scaled by the ratio of estimate to
    ``usual`` at the depth before.

    keep: factor by which each observation discounts the earlier counts.
    usual: probabilities by depth; ``START`` if not given.
    """

    WEIGHT, START = 2.0, 0.65

    def __init__(self, keep: float = 1.0, usual: Sequence[float] = ()):
        self._keep, self._usual = keep, usual
        self._counts: dict[int, tuple[float, float]] = {}  # accepted and tried, by depth

    def chances(self, depth: int) -> list[float]:
        """Returns the probabilities for depths 1, 2, …, ``depth``."""
        found, ratio = [], 1.0
        for k in range(depth):
            usual = self._usual[k] if k < len(self._usual) else self.START
            accepted, tried = self._counts.get(k, (0.0, 0.0))
            found.append((accepted + self.WEIGHT * min(1.0, usual * ratio)) / (tried + self.WEIGHT))
            ratio = found[-1] / usual
        return found

    def tokens(self, depth: int) -> list[float]:
        """Returns the expected number of accepted tokens for drafts of 0, 1, …, ``depth`` tokens."""
        return list(accumulate(accumulate(self.chances(depth), mul), initial=0.0))

    def observe(self, accepted: int, drafted: int) -> None:
        """Update with a draft of this many tokens, of which the first ``accepted`` were accepted."""
        self.forget(self._keep)
        for k in range(min(accepted + 1, drafted)):
            right, tried = self._counts.get(k, (0.0, 0.0))
            self._counts[k] = right + (k < accepted), tried + 1.0

    def forget(self, keep: float) -> None:
        """Discount all observations by this factor."""
        self._counts = {k: (keep * right, keep * tried) for k, (right, tried) in self._counts.items()}


class Calibration:
    """Maps a drafter's probabilities p to p^κ, with κ such that expected and accepted tokens agree on average."""

    RATE, LIMIT = 0.05, 4.0

    def __init__(self) -> None:
        self.exponent = 1.0

    def observe(self, expected: float, accepted: int) -> None:
        """Update with the expected and the actual number of accepted tokens of a step's tree."""
        surprise = max(-2.0, (expected - accepted) / (1.0 + expected))
        self.exponent = max(1 / self.LIMIT, min(self.LIMIT, self.exponent * exp(self.RATE * surprise)))
