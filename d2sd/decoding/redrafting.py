"""From how many prefixes a step drafts again: what that is expected to bring, and what it takes."""

from __future__ import annotations

from collections.abc import Sequence

from d2sd.decoding.costs import RunningCosts
from d2sd.decoding.gains import Calibration, LookAgain, Redrafts
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
        self._promised: list[float] = []  # what those from the 0, 1, … likeliest prefixes promised in planned steps
        self.looking = False  # whether this step's are not expected to pay
        self.expect(0, 0.0)

    def expect(self, block_size: int, rate: float) -> None:
        """The next steps have this γ, at the rate, in tokens a second, that a second of time is worth."""
        self._block_size, self._rate = block_size, rate
        self._added: list[float] = []  # by one from the true boundary, by its prefix
        self._can_pay = False

    def _look_up(self) -> None:
        """What ``expect`` leaves to the first step that can draft again."""
        if not self._added:
            self._added = self._learnt.by_prefix(self._block_size + self._longer - 1)
            # none adds more than one from the true boundary, and one alone costs least
            self._can_pay = max(self._added, default=0.0) > self._rate * self._seconds(1)

    @property
    def possible(self) -> bool:
        """Whether any could be taken, whatever the first draft says."""
        self._look_up()
        return self._can_pay or self._rest.due

    def gains(self, confidence: Sequence[float], prefixes: Sequence[int]) -> tuple[list[int], list[float]]:
        """The prefixes by r(i), the likeliest boundary first; and the tokens that re-drafts from the first 0, 1, … of them
        are expected to add.

        confidence: c_1 … c_{γ−1} of the first draft."""
        self._look_up()
        masses, alive, exponent = [], 1.0, self._first.exponent
        for c in confidence:
            reach = alive * c**exponent
            masses.append(alive - reach)
            alive = reach
        masses.append(alive)
        order, gains = sorted(prefixes, key=masses.__getitem__, reverse=True), [0.0]
        for prefix in order:
            gains.append(gains[-1] + masses[prefix] * self._added[prefix])
        return order, gains

    def best(self, drafted: Option, counts: Sequence[int], gains: Sequence[float]) -> int:
        """How many re-drafts, of ``counts`` or 0, to add to a drafted step; gains: expected of 0, 1, … of them."""
        self._look_up()
        if gains[-1] * (DOUBT if self._rest.due else 1.0) <= self._rate * self._seconds(1):
            return 0  # all of them promise less than one costs
        best = doubted = 0
        best_net = best_doubted = 0.0
        for count in counts:
            gain, price = gains[count], self._rate * self._seconds(count)
            if self._can_pay and gain - price > best_net:
                best_net, best = gain - price, count
            if DOUBT * gain - price > best_doubted:
                best_doubted, doubted = DOUBT * gain - price, count
        if not best and doubted and self._rest.due:
            # what is known is looked at again more rarely, the more a look is expected to lose
            lost = self._rate * self._seconds(doubted) - gains[doubted]  # in tokens
            self.looking = self._rest.since >= min(self._learnt.seen, lost / drafted.tokens / LOST)
            if self.looking:
                return doubted
            self._rest.postpone(POSTPONED)
        return best

    def option(self, drafted: Option, count: int, gains: Sequence[float]) -> Option:
        """The drafted step with so many re-drafts."""
        tokens, seconds = drafted.tokens + gains[count], drafted.seconds + self._seconds(count)
        return Option(drafted.block_size, count, tokens, seconds)

    def _seconds(self, count: int) -> float:
        """What so many re-drafts and their nodes take."""
        costs = self._costs
        node = (costs.seconds("verify", 24) - costs.seconds("verify", 8)) / 16 * self._nodes
        return costs.seconds("second_draft", count * (self._block_size + self._longer)) + count * node

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
