"""What drafting has lately gained in this text: running estimates with a prior. Plain floats; nothing is random."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, repeat, zip_longest
from math import exp

LONGEST_WAIT = 64  # steps without a look
APART = 3  # re-drafts from the prefix lengths 0, 1, and more are told apart


class Calibration:
    """Turns a drafter's probabilities p into p^κ, where κ makes expected and accepted tokens agree on average.

    usual: the one of all texts, at which the one of a text begins; that follows faster, and teaches it.
    """

    USUAL_RATE, OWN_RATE, MOST = 0.02, 0.08, 1.5

    def __init__(self, usual: Calibration | None = None) -> None:
        self._usual = usual
        self._log, self._rate, self._least = 0.0, 0.2, self.USUAL_RATE
        if usual is not None:
            self._log, self._rate, self._least = usual._log, self.OWN_RATE, self.OWN_RATE
        self.exponent = exp(self._log)

    def observe(self, expected: float, accepted: int) -> None:
        """So many tokens of a step's tree were expected to be accepted, and so many were."""
        surprise = max(-2.0, (expected - accepted) / (1.0 + expected))
        self._log = max(-self.MOST, min(self.MOST, self._log + self._rate * surprise))
        self._rate = max(self._least, 0.9 * self._rate)
        self.exponent = exp(self._log)
        if self._usual is not None:
            self._usual.observe(expected, accepted)


class Ranks:
    """How likely the likeliest, the second likeliest, … node of a tree has lately been on average.

    usual: those of all texts, at which those of a text begin; they follow faster, and teach it.
    """

    USUAL_RATE, OWN_RATE = 0.05, 0.25

    def __init__(self, usual: Ranks | None = None) -> None:
        self._usual = usual
        self.reach: list[float] = [] if usual is None else usual.reach
        self._rate = self.USUAL_RATE if usual is None else self.OWN_RATE

    def beside(self, reach: Sequence[float], weight: float) -> list[float]:
        """A tree's own probabilities, descending, with so much weight, and the usual ones with the rest of it."""
        if not self.reach:
            return list(reach)
        usual = chain(self.reach, repeat(0.0))
        return [weight * own + (1 - weight) * mean for own, mean in zip(reach, usual, strict=False)]

    def observe(self, reach: Sequence[float]) -> None:
        """A tree's nodes had these probabilities."""
        pairs, rate = zip_longest(self.reach, reach, fillvalue=0.0), self._rate
        self.reach = [mean + rate * (own - mean) for mean, own in pairs] if self.reach else list(reach)
        if self._usual is not None:
            self._usual.observe(reach)


class Share:
    """How often something comes true, lately: a discounted count."""

    KEEP, WEIGHT = 0.98, 4.0

    def __init__(self) -> None:
        self._true = self._all = 0.0

    @property
    def tried(self) -> float:
        """How many of the last tries still count."""
        return self._all

    def value(self, prior: float) -> float:
        """The estimate, strictly between 0 and 1 as the prior is, which counts like four tries."""
        return (self._true + prior * self.WEIGHT) / (self._all + self.WEIGHT)

    def observe(self, true: int, tried: int) -> None:
        """It came true so often in so many tries."""
        self._true = self.KEEP * self._true + true
        self._all = self.KEEP * self._all + tried


class Redrafts:
    """What a re-draft from the true boundary adds: its first token with one probability, every further one with another.

    The first token's is learnt apart for the prefix lengths 0, 1 and more, since a re-draft that sees no accepted token
    often repeats the rejected one. All of it is learnt across texts: it says more of the drafters than of a text.
    """

    FIRST, FURTHER = 0.4, 0.65  # before anything was seen

    def __init__(self) -> None:
        self._first, self._further = Share(), Share()
        self._first_at = [Share() for _ in range(APART)]
        self._without = 0.0

    @property
    def seen(self) -> float:
        """How many of the re-drafts from a true boundary still count, at most 50."""
        return self._first.tried

    def tokens(self, prefix: int, length: int) -> float:
        """What a re-draft of so many tokens from a prefix is expected to add, where the boundary is there."""
        return self.by_prefix(prefix + length)[prefix]

    def by_prefix(self, size: int) -> list[float]:
        """The same of re-drafts that end with the ``size``-th drafted token, from the prefixes 0, 1, … size − 1."""
        prior, further = self._first.value(self.FIRST), self._further.value(self.FURTHER)
        first = [share.value(prior) / (1.0 - further) for share in self._first_at]
        return [
            max(0.0, first[min(prefix, APART - 1)] * (1.0 - further ** (size - prefix)) - self._without)
            for prefix in range(size)
        ]

    def _at(self, prefix: int) -> Share:
        return self._first_at[min(prefix, APART - 1)]

    def observe(self, prefix: int, accepted: int, length: int) -> None:
        """A re-draft of so many tokens from the true boundary, ``prefix``, had so many accepted."""
        for share in (self._first, self._at(prefix)):
            share.observe(int(accepted > 0), 1)
        if accepted:
            self._further.observe(accepted - 1, min(accepted, length - 1))

    def observe_without(self, accepted: int) -> None:
        """So many tokens were accepted after a boundary that was not drafted from again: by siblings in a grown tree."""
        self._without += 0.1 * (accepted - self._without)


class Usual:
    """Tokens that a drafting step usually adds, learnt across texts."""

    RATE = 0.02

    def __init__(self) -> None:
        self.tokens, self._rate = 1.7, 0.2

    def observe(self, added: float) -> None:
        """A step added so many."""
        self.tokens += self._rate * (added - self.tokens)
        self._rate = max(self.RATE, 0.9 * self._rate)


class Yield:
    """Tokens that a drafting step adds to the one of plain decoding, and how they spread over depths, in one text."""

    FAST, SLOW = 0.25, 0.1
    UNLIKELY = 0.02  # chance of steps in a row without an accepted token below which the text has changed

    def __init__(self, depths: int, usual: Usual):
        self._usual = usual
        self._fast = self._slow = usual.tokens
        keep = usual.tokens / (1.0 + usual.tokens)  # of a geometric distribution with this mean
        self._survival = [keep**k for k in range(1, depths + 1)]
        self._sums = list(accumulate(self._survival))
        self._seen = 0
        self._chance = 1.0  # of so many steps in a row without an accepted token

    @property
    def tokens(self) -> float:
        """Expected added tokens."""
        return (self._fast + self._slow) / 2

    def by_length(self, drafted: int) -> float:
        """Expected added tokens with a first draft of only so many tokens."""
        return self.tokens * self._share(drafted)

    def _share(self, drafted: int) -> float:
        """What the first so many depths have of all that is added."""
        whole = self._sums[-1]
        return self._sums[min(drafted, len(self._sums)) - 1] / whole if whole > 0 else 1.0

    def observe(self, expected: float, accepted: int, drafted: int) -> None:
        """A step with so many drafted tokens added ``accepted``, where ``expected`` was what its tree promised."""
        self._chance = 1.0 if accepted else self._chance / (1.0 + self.tokens)
        if self._chance < self.UNLIKELY:
            self.restart()
        self._seen += 1
        start, share = 1.0 / (1.0 + self._seen), self._share(drafted)  # a longer draft would have added more
        self._fast += max(self.FAST, start) * (expected / share - self._fast)
        self._slow += max(self.SLOW, start) * (accepted / share - self._slow)
        self._usual.observe(accepted / share)
        rate, old = max(self.SLOW, 1.0 / (1.0 + self._seen)), self._survival
        tried, keep = min(max(accepted, drafted), len(old)), 1.0 - rate
        new = [keep * s + rate for s in old[:accepted]] + [keep * s for s in old[accepted:tried]]
        last = old[tried - 1]  # deeper tokens are as much likelier now as those of the last depth that was tried
        above = new[-1] / last if last > 0 else 1.0
        self._survival = new + [above * s for s in old[tried:]]
        self._sums = list(accumulate(self._survival))

    def restart(self) -> None:
        """The text has changed: what comes next counts as if little had been seen."""
        self._seen, self._chance = min(self._seen, 1), 1.0


class LookAgain:
    """When to try again what did not pay: at intervals that double with every fruitless look."""

    def __init__(self, first: int):
        self._first = self.wait = first
        self.since = self._postponed = 0

    @property
    def due(self) -> bool:
        """Whether it is time."""
        return self.since >= max(self.wait, self._postponed)

    def postpone(self, steps: int) -> None:
        """Not in the next few steps: it would take too long."""
        self._postponed = self.since + steps

    def skipped(self) -> None:
        """A step went by without it."""
        self.since += 1

    def looked(self, fruitful: bool, longest: float = LONGEST_WAIT) -> None:
        """It was tried; longest: steps to wait at most."""
        self.since = self._postponed = 0
        self.wait = self._first if fruitful else max(self._first, min(2 * self.wait, int(longest), LONGEST_WAIT))
