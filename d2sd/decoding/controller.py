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
from typing import NamedTuple

from d2sd.decoding.costs import RunningCosts
from d2sd.decoding.gains import Calibration, LookAgain, Ranks, Redrafts, Usual, Yield
from d2sd.decoding.redrafting import FOLLOW, LOST, Redrafting
from d2sd.decoding.tree_sizes import TreeSizes
from d2sd.trace.events import Decision, Option, StageSeconds

FIRST_WAIT = 6  # steps until the first look, after a pause begins
SURE, FIRST_STREAK, LONGEST_STREAK = 0.9, 3, 48  # the target's probability; tokens in a row that call for a look
MARGIN = 0.01  # by which a shorter draft has to promise more than the longest …
STAY = 0.02  # … and any other length than the last one more than that
KEEP_ON = 0.97  # drafting goes on while it is expected to be that much of plain decoding's rate
PLAN = 4  # steps that the choice of γ lasts, unless one of them accepts nothing


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


class Obtained(NamedTuple):
    """A step with a first draft of γ = ``block_size``: its nodes below the anchor, the tokens that were expected to be
    accepted, by drafter, and those that were, ``by_second`` of them proposed by the second drafter.

    redrafts: tokens of its re-drafts, by the prefixes that they began at; boundary: as for ``observe``.
    """

    block_size: int
    nodes: int
    expected: tuple[float, float]
    accepted: int
    by_second: int
    redrafts: dict[int, int]
    boundary: int | None


class Timed(NamedTuple):
    """What was decided for a step, its nodes, the anchor included, and how long its stages and the whole of it took."""

    decision: Decision
    nodes: int
    stages: StageSeconds
    whole: float


class Controller:
    """The decisions of one generation, and what they are made from.

    A step asks, in this order, ``begin``; ``redraft`` if there is a first draft; ``nodes`` if there is a tree; and
    then says how it went: ``observe`` and ``timed``. One that is queued as a whole asks for a ``plan`` and says what it
    drafted, ``planned``, instead. What steps brought and took is learnt when γ is chosen next, for several of them at once:
    between two passes a processor's caches are cold, and most of the time that code takes there is for what it touches first.

    known: goes on learning; lengths: values of γ to choose from, ascending; longer: γ₂ − γ; grown: whether trees are grown
    node by node, of many paths that may each be the accepted one; explain: whether re-drafts that are not taken are worked
    out too, for ``decision``.
    """

    def __init__(
        self, known: Known, lengths: Sequence[int], longer: int = 0, grown: bool = False, explain: bool = True
    ):
        self.costs, self.lengths, self.longer = known.costs, list(lengths), longer
        self._yield = Yield(max(self.lengths) - 1 + longer, known.usual)
        # the nodes of this text's drafts are weighed by how they hold here, what is rarer by how it holds in all texts
        self._first, self._second = Calibration(known.first), known.second
        self._sizes = TreeSizes(known.costs, Ranks(known.ranks) if grown else None)
        self._redrafting = Redrafting(known.costs, known.redrafts, known.first, longer)
        self._pause = LookAgain(FIRST_WAIT)
        self._streak, self._sure, self._paused = FIRST_STREAK, 0, False
        self._explain = explain
        self._obtained: list[Obtained] = []  # what was not learnt yet
        self._timed: list[Timed] = []
        self._left = 0  # steps for which γ is chosen already
        self._follows = self.costs.seconds("verify", 8)  # of a drafting step after its first draft, in its passes
        self._choices: tuple[Option, ...] = ()
        self._chosen = 0
        self._drafting = 0  # the draft that was taken last
        self._base = 0.0  # seconds of a step with this γ besides re-drafting and verifying; of a plain one, all
        self._start()

    def _start(self) -> None:
        """Forget the last step."""
        self._options, self._taken = self._choices, self._chosen
        self.block_size = self._nodes = 0
        self._redrafting.looking = False
        self._lengths: dict[int, int] = {}  # tokens of the re-drafts, by the prefixes that they begin at
        self._expected = 0.0, 0.0  # accepted tokens by drafter

    def begin(self) -> int:
        """γ of this step's first draft; 0 to decode plainly."""
        if self._left:
            self._left -= 1
        else:
            self._learn()
            self._choose()
        self._start()
        self.block_size = self._options[self._taken].block_size
        return self.block_size

    def _choose(self) -> None:
        """Choose γ, for this step and, where drafting pays, for the next ones."""
        self._pausing = self._sure_called = False  # whether this is a look, and why
        costs, chosen = self.costs, 0
        plain = costs.plain()
        base = costs.other(False) + self._follows
        drafts = (
            Option(size, 0, 1.0 + self._yield.by_length(size - 1), costs.seconds("first_draft", size) + base)
            for size in self.lengths
        )
        self._choices = (Option(0, 0, 1.0, plain), *drafts)
        rates = [o.tokens / o.seconds for o in self._choices]
        self._rate = max(rates)
        favoured = rates.copy()
        favoured[-1] *= 1 + MARGIN
        favoured[self._drafting] *= 1 + STAY
        drafting = self._drafting = max(range(1, len(rates)), key=favoured.__getitem__)
        if rates[0] * KEEP_ON < rates[drafting]:
            chosen = drafting
            self._paused = False
            self._left = PLAN - 1
        else:
            if not self._paused:
                self._paused = True
                self._pause.since = 0
            self._sure_called = self._sure >= self._streak
            self._pausing = self._pause.due or self._sure_called
            if self._pausing:
                chosen = drafting
        self._chosen, size = chosen, self._choices[chosen].block_size
        self._base = costs.other(False) + costs.seconds("first_draft", size) if size else plain
        self._redrafting.expect(size, self._rate)

    def redraft(self, confidence: Sequence[float], prefixes: Sequence[int]) -> tuple[int, ...]:
        """Those of the prefix lengths that a re-draft from pays for; confidence: c_1 … c_{γ−1} of the first draft."""
        if not (self._redrafting.possible or self._explain):
            return ()
        order, gains = self._redrafting.gains(confidence, prefixes)
        count = self._weigh(range(1, 1 + len(order)), gains)
        self._redrafted(order[:count])
        return tuple(order[:count])

    def plan(self, counts: Sequence[int]) -> tuple[int, int]:
        """γ and the number of re-drafts, of ``counts`` (ascending) or 0, of a step that is queued before its first draft is
        seen: what re-drafts promised in the steps before stands for what they would promise in this one."""
        size = self.begin()
        counts = [count for count in counts if count < size]  # a block has γ − 1 prefixes to draft again from
        if not size or not counts:
            return size, 0
        usual = self._yield.tokens / (1.0 + self._yield.tokens)  # as if every token were as sure as in a usual draft
        return size, self._weigh(counts, self._redrafting.promised(counts[-1], [usual] * (size - 1)))

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
        _, gains = self._redrafting.gains(confidence, prefixes)
        self._redrafting.promise(gains)
        self._redrafted(drafted)
        self._verified(reach, by_second)

    def _redrafted(self, prefixes: Sequence[int]) -> None:
        size = self.block_size + self.longer
        self._lengths = {prefix: size - 1 - prefix for prefix in prefixes}

    def _weigh(self, counts: Sequence[int], gains: Sequence[float]) -> int:
        """How many re-drafts, of ``counts`` or 0, to add to the drafted step; gains: expected of 0, 1, … of them. Keeps the
        options and the one taken for ``decision``."""
        redrafting, drafted = self._redrafting, self._options[self._taken]
        best = redrafting.best(drafted, counts, gains)
        shown = counts if self._explain else [best] if best else []
        if best:
            self._taken = len(self._options) + shown.index(best)
        self._options += tuple(redrafting.option(drafted, count, gains) for count in shown)
        return best

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
            self._redrafting.verified(sum(by_second), len(self._lengths))

    def decision(self) -> Decision:
        """What the step decided, once its tree is there."""
        looking = (self._pausing and self.block_size > 0) or self._redrafting.looking
        return Decision(self._options, self._taken, 1.0 + sum(self._expected), self._step_seconds(), looking)

    def _step_seconds(self) -> float:
        """What this step is expected to take."""
        branches, costs = self._options[self._taken].branches, self.costs
        if not self.block_size:
            return self._base
        seconds = self._base + costs.seconds("verify", 1 + self._nodes)
        return seconds + costs.seconds("second_draft", branches * (self.block_size + self.longer))

    def observe(self, accepted: int, by_second: int, boundary: int | None, sure: float) -> None:
        """What the step brought.

        accepted: drafted tokens that were accepted, ``by_second`` of them proposed by the second drafter; boundary: how
        many of the first draft's were, where that was seen; sure: the target's probability of the first committed token.
        """
        self._sure = self._sure + 1 if sure >= SURE else 0
        if not self.block_size:
            self._pause.skipped()
            return
        self._redrafting.stepped(self._lengths, boundary, accepted)
        redrafts, size, nodes = self._lengths, self.block_size, self._nodes
        self._obtained.append(Obtained(size, nodes, self._expected, accepted, by_second, redrafts, boundary))
        if not accepted:
            self._left = 0
        if self._pausing:
            self._looked(accepted)

    def timed(self, decision: Decision, nodes: int, stages: StageSeconds, whole: float) -> None:
        """How long the stages of a step with so many nodes, the anchor included, and the ``whole`` of it took."""
        self._timed.append(Timed(decision, nodes, stages, whole))

    def _looked(self, accepted: int) -> None:
        """A pause was interrupted by a draft of which so many tokens were accepted."""
        plain, seconds = self.costs.plain(), self._step_seconds()
        fruitful = (1 + accepted) * plain > seconds
        if fruitful:
            self._yield.restart()
        if self._sure_called:
            self._streak = FIRST_STREAK if fruitful else min(2 * self._streak, LONGEST_STREAK)
        lost = seconds / plain - 1.0 - self._yield.tokens  # in plain steps
        self._pause.looked(fruitful, lost / LOST)
        self._sure = 0

    def _learn(self) -> None:
        """Learn from the steps since γ was chosen last."""
        costs, longer = self.costs, self.longer
        for step in self._obtained:
            self._first.observe(step.expected[0], step.accepted - step.by_second)
            if step.redrafts:
                self._second.observe(step.expected[1], step.by_second)
            if step.boundary is not None and step.boundary < step.block_size - 1:
                self._redrafting.learn(step.redrafts, step.boundary, step.accepted)
            followed = costs.seconds("second_draft", len(step.redrafts) * (step.block_size + longer))
            followed += costs.seconds("verify", 1 + step.nodes)
            self._follows += FOLLOW * (followed - self._follows)
            self._yield.observe(sum(step.expected), step.accepted, step.block_size - 1)
        for decision, nodes, stages, whole in self._timed:
            taken = decision.options[decision.taken]
            costs.observe("first_draft", taken.block_size, stages.first_draft)
            costs.observe("second_draft", taken.branches * (taken.block_size + longer), stages.second_draft)
            costs.observe("verify", nodes, stages.verify)
            passes = stages.first_draft + stages.second_draft + stages.verify
            costs.observe_other(not taken.block_size, whole - passes)
        self._obtained, self._timed = [], []
