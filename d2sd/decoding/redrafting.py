"""From how many prefixes a step drafts again: what that is expected to bring, and what it takes."""

from __future__ import annotations

from collections.abc import Sequence

from d2sd.decoding.costs import RunningCosts
from d2sd.decoding.gains import APART, Calibration, LookAgain, Redrafts
from d2sd.trace.events import Option

FIRST_WAIT = 8  # steps until the first look at what was not expected to pay
POSTPONED = 4  # steps until the next try, where a look would have taken too long
DOUBT = 2.0  # it is looked at where it would pay with so many times its estimate
LOST = 0.01  # share of the time that looks may cost in the long run, before they grow rarer
FOLLOW = 0.2  # share of a step's surprise that running means take over
PROMISE = 0.1  # the same of what re-drafts promise, which differs more from step to step


class Redrafting:
    """The re-drafts of one generation.

    learnt: what they add, which goes on learning; first: how the first drafter's confidences hold in all texts; longer: γ₂ − γ.
    """

    def __init__(self, costs: RunningCosts, learnt: Redrafts, first: Calibration, longer: int):
        self._costs, self._learnt, self._first, self._longer = costs, learnt, first, longer
        self._rest = LookAgain(FIRST_WAIT)
        self._nodes = 3.0  # of one re-draft that are verified
        self._rate, self._can_pay = 0.0, True
        self._promised: list[float] = []  # what those from the 0, 1, … likeliest prefixes promised in planned steps
        self.looking = False  # whether this step's are not expected to pay

    def expect(self, block_size: int, rate: float) -> None:
        """The next steps have this γ, at the rate, in tokens a second, that a second of time is worth."""
        self._rate, length = rate, block_size + self._longer - 1
        # none adds more than one from the true boundary, and one alone costs least
        most = max(map(self._learnt.tokens, range(APART), range(length, 0, -1)), default=0.0)
        self._can_pay = most > rate * self._seconds(block_size, 1)

    @property
    def possible(self) -> bool:
        """Whether any could be taken, whatever the first draft says."""
        return self._can_pay or self._rest.due

    def gains(self, confidence: Sequence[float], prefixes: Sequence[int]) -> tuple[list[int], list[float], list[float]]:
        """The prefixes by r(i), the likeliest boundary first; the tokens that re-drafts from the first 0, 1, … of them are
        expected to add; and the probabilities that the first draft's tokens are accepted.

        confidence: c_1 … c_{γ−1} of the first draft."""
        masses, reach, alive = [], [], 1.0
        for c in confidence:
            reach.append(alive * c**self._first.exponent)
            masses.append(alive - reach[-1])
            alive = reach[-1]
        masses.append(alive)
        order, gains, length = sorted(prefixes, key=lambda p: -masses[p]), [0.0], len(confidence) + self._longer
        for prefix in order:
            gains.append(gains[-1] + masses[prefix] * self._learnt.tokens(prefix, length - prefix))
        return order, gains, reach

    def weigh(self, drafted: Option, counts: Sequence[int], gains: Sequence[float]) -> tuple[list[Option], int]:
        """The step as drafted so far and with so many re-drafts each, and the place of the one to take.

        gains: expected of 0, 1, … re-drafts.
        """
        size, tokens, seconds = drafted.block_size, drafted.tokens, drafted.seconds
        options, best, doubted = [drafted], 0, 0
        best_net = best_doubted = 0.0
        for at, count in enumerate(counts, 1):
            spent = self._seconds(size, count)
            options.append(Option(size, count, tokens + gains[count], seconds + spent))
            price = self._rate * spent
            if self._can_pay and gains[count] - price > best_net:
                best_net, best = gains[count] - price, at
            if DOUBT * gains[count] - price > best_doubted:
                best_doubted, doubted = DOUBT * gains[count] - price, at
        if not best and doubted and self._rest.due:
            # what is known is looked at again more rarely, the more a look is expected to lose
            look = options[doubted]
            lost = self._rate * (look.seconds - seconds) - (look.tokens - tokens)  # in tokens
            self.looking = self._rest.since >= min(self._learnt.seen, lost / tokens / LOST)
            if self.looking:
                return options, doubted
            self._rest.postpone(POSTPONED)
        return options, best

    def _seconds(self, block_size: int, count: int) -> float:
        """What so many re-drafts and their nodes take."""
        costs = self._costs
        node = (costs.seconds("verify", 24) - costs.seconds("verify", 8)) / 16 * self._nodes
        return costs.seconds("second_draft", count * (block_size + self._longer)) + count * node

    def promised(self, most: int, usual: Sequence[float]) -> list[float]:
        """What 0, 1, … ``most`` re-drafts have lately promised, before their first draft was seen; usual: the confidences of
        a usual first draft, for as long as none was seen."""
        gains = self._promised or self.gains(usual, range(len(usual)))[1]
        return gains + gains[-1:] * most

    def promise(self, gains: Sequence[float]) -> None:
        """0, 1, … re-drafts promised so much in a step that was planned."""
        known = self._promised + (self._promised[-1:] or [0.0]) * (len(gains) - len(self._promised))
        rate = PROMISE if self._promised else 1.0
        self._promised = [p + rate * (gain - p) for p, gain in zip(known, gains, strict=False)]

    def verified(self, nodes: int, count: int) -> None:
        """So many nodes of so many re-drafts are verified."""
        self._nodes += FOLLOW * (nodes / count - self._nodes)

    def stepped(self, lengths: dict[int, int], boundary: int | None, accepted: int) -> None:
        """A drafting step made re-drafts of these numbers of tokens, by their prefixes; boundary: how many tokens of the
        first draft were accepted, where that was seen; accepted: of all."""
        if not lengths:
            self._rest.skipped()
            return
        found = boundary is not None and boundary in lengths and accepted > boundary
        self._rest.looked(found or not self.looking)

    def learn(self, lengths: dict[int, int], boundary: int, accepted: int) -> None:
        """The same of steps whose first draft was rejected somewhere: what the re-drafts added."""
        length = lengths.get(boundary)
        if length is None:
            self._learnt.observe_without(accepted - boundary)
        else:
            self._learnt.observe(boundary, accepted - boundary, length)
