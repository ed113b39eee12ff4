"""What a step spends: whether to draft, how long, from how many prefixes to draft again, how many nodes to verify.

Every choice maximises expected tokens − ρ · expected seconds, where ρ is the rate, in tokens a second, that the text
allows at present: what brings less than ρ a second would lower it. ρ is never below the rate of plain decoding.

A choice depends on what was committed before, in this text and in earlier ones, on this step's drafts and on measured
times only, never on what the target will say at a position that is not committed yet: whatever is chosen, the text is
the target's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from d2sd.decoding.costs import RunningCosts
from d2sd.decoding.gains import Calibration, LookAgain, Ranks, Redrafts, Usual, Yield
from d2sd.decoding.tree_sizes import TreeSizes
from d2sd.trace.events import Decision, Option

FIRST_WAIT, FIRST_REDRAFT_WAIT = 6, 8  # steps until the first look, after a pause begins
SURE, FIRST_STREAK, LONGEST_STREAK = 0.9, 3, 48  # the target's probability; tokens in a row that call for a look
MARGIN = 0.06  # by which a shorter draft has to promise more than the longest
KEEP_ON = 0.97  # drafting goes on while it is expected to be that much of plain decoding's rate
DOUBT = 2.0  # re-drafts are looked at where they would pay with so many times their estimate
LOST = 0.01  # share of the time that looks may cost in the long run, before they grow rarer
FOLLOW = 0.2  # share of a step's surprise that running means take over
PROMISE = 0.1  # the same of what re-drafts promise, which differs more from step to step


@dataclass(frozen=True, slots=True)
class Known:
    """What is known before a text, all of it learnt in earlier ones: what stages cost, what drafts and re-drafts add, and
    how far the drafters' probabilities hold."""

    costs: RunningCosts
    usual: Usual = field(default_factory=Usual)
    redrafts: Redrafts = field(default_factory=Redrafts)
    first: Calibration = field(default_factory=Calibration)
    second: Calibration = field(default_factory=Calibration)
    ranks: Ranks = field(default_factory=Ranks)


class Controller:
    """The decisions of one generation, and what they are made from.

    A step asks, in this order, ``begin``; ``redraft`` if there is a first draft; ``nodes`` if there is a tree; and
    then says how it went: ``observe``. One that is queued as a whole asks for a ``plan`` and says what it drafted,
    ``planned``, instead.

    known: goes on learning; lengths: values of γ to choose from, ascending; longer: γ₂ − γ; grown: whether trees are grown
    node by node, of many paths that may each be the accepted one.
    """

    def __init__(self, known: Known, lengths: Sequence[int], longer: int = 0, grown: bool = False):
        self.costs, self.lengths, self.longer = known.costs, list(lengths), longer
        self._yield = Yield(max(self.lengths) - 1 + longer, known.usual)
        self._redrafts = known.redrafts
        # the nodes of this text's drafts are weighed by how they hold here, what is rarer by how it holds in all texts
        self._first, self._usual_first, self._second = Calibration(known.first), known.first, known.second
        self._sizes = TreeSizes(known.costs, Ranks(known.ranks) if grown else None)
        self._pause, self._rest = LookAgain(FIRST_WAIT), LookAgain(FIRST_REDRAFT_WAIT)
        self._streak, self._sure, self._paused = FIRST_STREAK, 0, False
        self._follows = self.costs.seconds("verify", 8)  # of a drafting step after its first draft, in its passes
        self._branch_nodes = 3.0
        self._promised: list[float] = []  # what re-drafts from the 0, 1, … likeliest prefixes promised in planned steps
        self._start()

    def _start(self) -> None:
        """Forget the last step."""
        self._options: list[Option] = []
        self._taken = self.block_size = self._nodes = 0
        self._pausing = self._resting = self._sure_called = False  # whether this is a look, at what, and why
        self._lengths: dict[int, int] = {}  # tokens of the re-drafts, by the prefixes that they begin at
        self._expected = 0.0, 0.0  # accepted tokens by drafter

    def begin(self) -> int:
        """γ of this step's first draft; 0 to decode plainly."""
        self._start()
        costs = self.costs
        plain = costs.plain()
        base = costs.other(False) + self._follows
        self._options = [Option(0, 0, 1.0, plain)]
        for size in self.lengths:
            seconds = costs.seconds("first_draft", size) + base
            self._options.append(Option(size, 0, 1.0 + self._yield.by_length(size - 1), seconds))
        rates = [o.tokens / o.seconds for o in self._options]
        self._rate = max(rates)
        longest = len(self.lengths)
        drafting = max(range(1, 1 + longest), key=lambda n: rates[n] if n == longest else rates[n] * (1 - MARGIN))
        if rates[0] * KEEP_ON < rates[drafting]:
            self._taken = drafting
            self._paused = False
        else:
            if not self._paused:
                self._paused = True
                self._pause.since = 0
            self._sure_called = self._sure >= self._streak
            self._pausing = self._pause.due or self._sure_called
            if self._pausing:
                self._taken = drafting
        self.block_size = self._options[self._taken].block_size
        return self.block_size

    def redraft(self, confidence: Sequence[float], prefixes: Sequence[int]) -> tuple[int, ...]:
        """Those of the prefix lengths that a re-draft from pays for; confidence: c_1 … c_{γ−1} of the first draft."""
        order, gains, reach = self._gains(confidence, prefixes)
        costs, verified = self.costs, self._sizes.best(reach, self._rate)
        seconds = costs.seconds("first_draft", self.block_size) + costs.other(False)
        seconds += costs.seconds("verify", 1 + verified)
        best = self._count(1.0 + sum(reach[:verified]), seconds, range(1, 1 + len(order)), gains)
        self._redrafted(order[:best])
        return tuple(order[:best])

    def plan(self, counts: Sequence[int]) -> tuple[int, int]:
        """γ and the number of re-drafts, of ``counts`` (ascending) or 0, of a step that is queued before its first draft is
        seen: what re-drafts promised in the steps before stands for what they would promise in this one."""
        size = self.begin()
        counts = [count for count in counts if count < size]  # a block has γ − 1 prefixes to draft again from
        if not size or not counts:
            return size, 0
        gains = self._promised
        if not gains:  # as if every token were as sure as in a usual draft
            usual = self._yield.tokens / (1.0 + self._yield.tokens)
            _, gains, _ = self._gains([usual] * (size - 1), range(size - 1))
        gains = gains + gains[-1:] * counts[-1]
        drafted = self._options[self._taken]
        return size, self._count(drafted.tokens, drafted.seconds, counts, gains)

    def planned(
        self,
        confidence: Sequence[float],
        prefixes: Sequence[int],
        drafted: Sequence[int],
        reach: Sequence[float],
        by_second: Sequence[bool],
    ) -> None:
        """What a planned step drafted: the first draft's confidences, the prefixes that could be drafted from again and
        those that were, and of all nodes what ``nodes`` takes."""
        _, gains, _ = self._gains(confidence, prefixes)
        known = self._promised + (self._promised[-1:] or [0.0]) * (len(gains) - len(self._promised))
        rate = PROMISE if self._promised else 1.0
        self._promised = [p + rate * (gain - p) for p, gain in zip(known, gains, strict=False)]
        self._redrafted(drafted)
        self._verified(reach, by_second)

    def _redrafted(self, prefixes: Sequence[int]) -> None:
        size = self.block_size + self.longer
        self._lengths = {prefix: size - 1 - prefix for prefix in prefixes}

    def _gains(
        self, confidence: Sequence[float], prefixes: Sequence[int]
    ) -> tuple[list[int], list[float], list[float]]:
        """The prefixes by r(i), the likeliest boundary first; the tokens that re-drafts from the first 0, 1, … of them are
        expected to add; and the probabilities that the first draft's tokens are accepted."""
        masses, reach, alive = [], [], 1.0
        for c in confidence:
            reach.append(alive * c**self._usual_first.exponent)
            masses.append(alive - reach[-1])
            alive = reach[-1]
        masses.append(alive)
        order, gains, size = sorted(prefixes, key=lambda p: -masses[p]), [0.0], 1 + len(confidence) + self.longer
        for prefix in order:
            gains.append(gains[-1] + masses[prefix] * self._redrafts.tokens(prefix, size - 1 - prefix))
        return order, gains, reach

    def _count(self, tokens: float, seconds: float, counts: Sequence[int], gains: Sequence[float]) -> int:
        """How many re-drafts, of ``counts`` or 0, to add to a step of so many expected tokens and seconds; gains: expected
        of 0, 1, … of them. Keeps the options and the one taken for ``decision``."""
        costs, size = self.costs, self.block_size + self.longer
        node = (costs.seconds("verify", 24) - costs.seconds("verify", 8)) / 16 * self._branch_nodes
        options = [Option(self.block_size, 0, tokens, seconds)]
        best = doubted = 0
        best_net = best_doubted = 0.0
        for at, count in enumerate(counts, 1):
            spent = costs.seconds("second_draft", count * size) + count * node
            options.append(Option(self.block_size, count, tokens + gains[count], seconds + spent))
            price = self._rate * spent
            if gains[count] - price > best_net:
                best_net, best = gains[count] - price, at
            if DOUBT * gains[count] - price > best_doubted:
                best_doubted, doubted = DOUBT * gains[count] - price, at
        if not best and doubted and self._rest.due:
            # what is known is looked at again more rarely, the more a look is expected to lose
            look = options[doubted]
            lost = self._rate * (look.seconds - seconds) - (look.tokens - tokens)  # in tokens
            if self._rest.since >= min(self._redrafts.seen, lost / tokens / LOST):
                best, self._resting = doubted, True
        self._taken = len(self._options) + best
        self._options += options
        return options[best].branches

    def least(self, most: int) -> list[float]:
        """The drafted log probability below which a node is not worth its time, by the nodes that are there already, the
        anchor included; for 0 to ``most`` of them."""
        return self._sizes.least(most, self._rate, min(self.exponents))

    @property
    def exponents(self) -> tuple[float, float]:
        """κ of both drafters: a token that one of them gives p, after an accepted path, is accepted with p^κ."""
        return self._first.exponent, self._second.exponent

    def nodes(self, reach: Sequence[float], by_second: Sequence[bool], most: int) -> int:
        """How many nodes below the anchor to verify, at most ``most``.

        reach: their probabilities of acceptance, descending; by_second: whether the second drafter proposed them.
        """
        count = self._sizes.count(reach, most, self._rate, min(self.exponents))
        self._verified(reach[:count], by_second[:count])
        return count

    def _verified(self, reach: Sequence[float], by_second: Sequence[bool]) -> None:
        second = sum(r for r, other in zip(reach, by_second, strict=True) if other) if any(by_second) else 0.0
        self._expected = sum(reach) - second, second
        self._nodes = len(reach)
        if self._lengths:
            self._branch_nodes += FOLLOW * (sum(by_second) / len(self._lengths) - self._branch_nodes)

    def decision(self) -> Decision:
        """What the step decided, once its tree is there."""
        taken, costs = self._options[self._taken], self.costs
        seconds = costs.plain()
        if self.block_size:
            seconds = costs.other(False) + costs.seconds("first_draft", self.block_size)
            seconds += costs.seconds("second_draft", taken.branches * (self.block_size + self.longer))
            seconds += costs.seconds("verify", 1 + self._nodes)
        looking = self._pausing or self._resting
        return Decision(tuple(self._options), self._taken, 1.0 + sum(self._expected), seconds, looking)

    def observe(self, accepted: int, by_second: int, boundary: int | None, sure: float) -> None:
        """What the step brought.

        accepted: drafted tokens that were accepted, ``by_second`` of them proposed by the second drafter; boundary: how
        many of the first draft's were, where that was seen; sure: the target's probability of the first committed token.
        """
        self._sure = self._sure + 1 if sure >= SURE else 0
        if not self.block_size:
            self._pause.skipped()
            return
        branches = self._options[self._taken].branches
        self._first.observe(self._expected[0], accepted - by_second)
        self._second.observe(self._expected[1], by_second)
        self._learn_redrafts(accepted, boundary)
        spent = self.costs.seconds("second_draft", branches * (self.block_size + self.longer))
        spent += self.costs.seconds("verify", 1 + self._nodes)
        self._follows += FOLLOW * (spent - self._follows)
        if self._pausing:
            fruitful = (1 + accepted) * self.costs.plain() > self.decision().seconds
            if fruitful:
                self._yield.restart()
            if self._sure_called:
                self._streak = FIRST_STREAK if fruitful else min(2 * self._streak, LONGEST_STREAK)
            lost = self.decision().seconds / self.costs.plain() - 1.0 - self._yield.tokens  # in plain steps
            self._pause.looked(fruitful, lost / LOST)
            self._sure = 0
        self._yield.observe(sum(self._expected), accepted, self.block_size - 1)

    def _learn_redrafts(self, accepted: int, boundary: int | None) -> None:
        branches = len(self._lengths)
        if boundary is not None and boundary < self.block_size - 1:
            if boundary in self._lengths:
                self._redrafts.observe(boundary, accepted - boundary, self._lengths[boundary])
            else:
                self._redrafts.observe_without(accepted - boundary)
        if not branches:
            self._rest.skipped()
        elif self._resting:
            self._rest.looked(boundary is not None and boundary in self._lengths and accepted > boundary)
        else:
            self._rest.looked(True)
