"""Sizes of a step: whether to draft, γ, the prefixes to re-draft from, and the nodes to verify.

By default, the settings determine all sizes. In a cost-aware run, every choice maximises expected tokens − ρ · expected seconds,
where ρ is the best expected rate in tokens per second. Choices depend only on committed tokens, the drafts of this step and
measured times, so they do not change the text. Expected tokens come from discounted counts with a prior. Expected seconds come from
a table of stage costs, corrected by the measured times of the run. No choice is random.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from math import exp, inf, log
from operator import mul

from d2sd.config import DecodeConfig
from d2sd.costs.machines import STAGES, StageCosts
from d2sd.methods import METHODS, Drafters, FirstDraft, Proposal
from d2sd.methods.d2sd import select_likeliest
from d2sd.trace.events import Decision, Option, StageSeconds
from d2sd.tree.tree import TokenTree
from d2sd.tree.walk import TreeWalk

SLOWDOWN_RATE, STAGE_RATE = 0.05, 0.01  # update rates of the slowdown and of the stages' overheads
OUTLIER = 1.0  # limit of |log(measured ÷ expected)| for one measured time
OVERHEAD_DECAY = 0.999  # factor on a stage's overhead, per step
# Discounts per step: the counts of one text remember 25 steps, the counts of all texts remember 100.
TEXT_KEEP, ALL_KEEP = 0.96, 0.99
MEAN_RATE = 0.1  # update rate of the other running means
REDRAFT_NODES = 3  # usual number of verified nodes per re-draft
SHORTEST_WAIT, LONGEST_WAIT = 4, 128  # plain steps before drafting is tried again; doubled after a failed try


class AcceptanceByDepth:
    """Estimates the probability that a drafted token at some depth is accepted, given that all tokens before it were accepted.

    For each depth, tokens are counted in drafts that were accepted up to this depth. The prior of a depth counts as ``WEIGHT``
    observations. Its probability is ``usual[depth]``, times the ratio of estimated to usual probability at the previous depth.

    keep: factor by which each observation discounts the earlier counts.
    usual: usual probabilities by depth; ``START`` for further depths.
    """

    WEIGHT, START = 2.0, 0.65

    def __init__(self, keep: float = 1.0, usual: Sequence[float] = ()):
        self._keep, self._usual = keep, usual
        self._counts: dict[int, tuple[float, float]] = {}  # numbers of accepted and tried tokens by depth

    def chances(self, depth: int) -> list[float]:
        """Returns the probabilities for depths 1, 2, …, ``depth``."""
        probabilities, ratio = [], 1.0
        for k in range(depth):
            usual = self._usual[k] if k < len(self._usual) else self.START
            accepted, tried = self._counts.get(k, (0.0, 0.0))
            probabilities.append((accepted + self.WEIGHT * min(1.0, usual * ratio)) / (tried + self.WEIGHT))
            ratio = probabilities[-1] / usual
        return probabilities

    def tokens(self, depth: int) -> list[float]:
        """Returns the expected number of accepted tokens for drafts of 0, 1, …, ``depth`` tokens."""
        return list(accumulate(accumulate(self.chances(depth), mul), initial=0.0))

    def observe(self, accepted: int, drafted: int) -> None:
        """Updates the counts with a draft of ``drafted`` tokens, of which the first ``accepted`` were accepted."""
        self.forget(self._keep)
        for k in range(min(accepted + 1, drafted)):
            right, tried = self._counts.get(k, (0.0, 0.0))
            self._counts[k] = right + (k < accepted), tried + 1.0

    def forget(self, keep: float) -> None:
        self._counts = {k: (keep * right, keep * tried) for k, (right, tried) in self._counts.items()}


class ConfidenceExponent:
    """The exponent κ of a drafter: a token with drafter probability p is accepted with probability p^κ.

    κ is adapted until expected and accepted tokens agree on average.
    """

    RATE, LIMIT = 0.05, 4.0

    def __init__(self) -> None:
        self.value = 1.0

    def observe(self, expected: float, accepted: int) -> None:
        """Updates κ with the expected and the actual number of accepted tokens of a step's tree."""
        surprise = max(-2.0, (expected - accepted) / (1.0 + expected))
        self.value = max(1 / self.LIMIT, min(self.LIMIT, self.value * exp(self.RATE * surprise)))


class RunningCosts:
    """Expected seconds of stages, corrected while running: seconds = slowdown · (seconds in the table + overhead of the stage).

    The slowdown is the same for all stages. A stage has one overhead for passes of one row (plain decoding), and another for longer
    passes.
    """

    def __init__(self, table: StageCosts):
        self.table, self.slowdown = table, 1.0
        self._node = cache(table.verify.next_row)
        self.cheapest = min(self._node(rows) for rows, _ in table.verify.points)  # seconds of the cheapest further node
        self._read = cache(lambda stage, rows: getattr(table, stage).seconds(rows))
        self._overhead: dict[tuple[str, bool], float] = {}  # by stage and whether the pass has one row
        self.other = {True: table.other, False: table.other}  # seconds outside the stages, by whether the step is plain

    def seconds(self, stage: str, rows: int) -> float:
        """Returns the expected seconds of a stage with this many rows; 0 for no rows."""
        if rows <= 0:
            return 0.0
        return self.slowdown * (self._read(stage, rows) + self._overhead.get((stage, rows == 1), 0.0))

    def node(self, nodes: int) -> float:
        return self.slowdown * self._node(nodes)

    def plain(self) -> float:
        return self.seconds("verify", 1) + self.other[True]

    def observe(self, stage: str, rows: int, seconds: float) -> None:
        """Updates the slowdown and the stage's overhead with the measured seconds of a stage with this many rows."""
        expected, key = self.seconds(stage, rows), (stage, rows == 1)
        if min(expected, seconds) > 0:
            surprise = max(-OUTLIER, min(OUTLIER, log(seconds / expected)))
            overhead = OVERHEAD_DECAY * self._overhead.get(key, 0.0)
            self._overhead[key] = overhead + STAGE_RATE * surprise * expected / self.slowdown
            self.slowdown *= exp(SLOWDOWN_RATE * surprise)

    def observe_other(self, plain: bool, seconds: float) -> None:
        """Updates the seconds outside the stages with those of a step.

        plain: whether the step was plain decoding.
        """
        most = 2 * self.other[plain] + 0.1 * self.plain()
        self.other[plain] += SLOWDOWN_RATE * (max(0.0, min(seconds, most)) - self.other[plain])


class Experience:
    """Statistics for cost-aware steps that an engine keeps for all generations with one method."""

    def __init__(self, table: StageCosts):
        self.costs = RunningCosts(table)
        self.drafts = AcceptanceByDepth(ALL_KEEP)
        # Re-drafts from the true boundary, by whether the prefix has tokens: from empty ones, they often repeat the rejected token.
        self.redrafts = {whole: AcceptanceByDepth() for whole in (False, True)}
        self.siblings = 0.0  # mean number of tokens accepted after a true boundary that was not re-drafted from
        self.after_draft = self.costs.seconds("verify", 4)  # mean seconds per step of re-drafting and verifying
        self.exponents = ConfidenceExponent(), ConfidenceExponent()  # of the first and the second drafter


class Controller:
    """Determines the sizes of the steps of one generation.

    A step calls ``begin``, ``worthwhile`` and ``prune``, and reports its outcome with ``learn`` and ``timed``. If all its sizes
    must be known before its first draft, it takes them from ``begin`` and ``next_redrafts``, and then calls ``queued`` in place of
    ``worthwhile`` and ``prune``.

    config: resolved settings.
    lengths: values of γ to choose from, ascending. The last one is the configured γ.
    extension: γ₂ − γ.
    experience: statistics for cost-aware steps, whose sizes have the settings as upper limits. None: all steps have the sizes of
        the settings.
    """

    def __init__(
        self, config: DecodeConfig, lengths: Sequence[int], extension: int = 0, experience: Experience | None = None
    ):
        self.config, self.lengths, self.extension, self.experience = config, lengths, extension, experience
        self.redrafts = METHODS[config.method].second_drafter != "none"
        self.next_redrafts = config.num_branches  # cost-aware: the number that would have been best for the last draft
        if experience is None:
            return
        self.costs, self.exponents, self.next_redrafts = experience.costs, experience.exponents, 0
        self._depth = lengths[-1] - 1 + extension
        self._text = AcceptanceByDepth(TEXT_KEEP, experience.drafts.chances(self._depth))
        self._wait, self._plain_steps = SHORTEST_WAIT, 0

    def begin(self) -> int:
        """Returns γ of this step's first draft; 0 for plain decoding."""
        if self.experience is None:
            return self.lengths[-1]
        costs, tokens = self.costs, self._text.tokens(self._depth)
        self.options = [Option(0, 0, 1.0, costs.plain())]
        for size in self.lengths:
            seconds = costs.seconds("first_draft", size) + self.experience.after_draft + costs.other[False]
            self.options.append(Option(size, 0, 1.0 + tokens[size - 1 + self.extension], seconds))
        rates = [option.tokens / option.seconds for option in self.options]
        self.rate, drafting = max(rates), rates.index(max(rates[1:]), 1)
        pays = rates[drafting] > rates[0]
        self._looking = not pays and self._plain_steps >= self._wait
        return self.take(drafting if pays or self._looking else 0)

    def take(self, option: int) -> int:
        """Begins the step with the option of this index. Returns the option's γ."""
        self._taken, self.block_size = option, self.options[option].block_size
        self._redrafts: dict[int, int] = {}  # number of re-drafted tokens by prefix
        self._expected, self._nodes = (0.0, 0.0), 0  # expected accepted tokens by drafter
        return self.block_size

    def worthwhile(self, draft: FirstDraft, prefixes: Sequence[int]) -> Sequence[int]:
        """Returns the selected prefixes that are worth a re-draft, in descending order of r(i) (``d2sd.tree.boundary``).

        The expected gain of a re-draft from prefix length i is r(i) times the number of tokens that a re-draft from the true
        boundary adds.
        """
        experience = self.experience
        if experience is None or draft.block is None or not prefixes:
            return prefixes
        costs, size, exponent = self.costs, self.block_size + self.extension, self.exponents[0].value
        reach = list(accumulate((c**exponent for c in draft.block.confidence), mul, initial=1.0))
        boundary = [here - further for here, further in zip(reach, [*reach[1:], 0.0], strict=True)]
        order = sorted(prefixes, key=boundary.__getitem__, reverse=True)
        added = {whole: estimate.tokens(size - 1) for whole, estimate in experience.redrafts.items()}
        for estimate in experience.redrafts.values():
            estimate.forget(ALL_KEEP)  # so that re-drafts that did not pay are eventually tried again
        drafted, gain, nets = self.options[self._taken], 0.0, [0.0]
        for count, prefix in enumerate(order, 1):
            gain += boundary[prefix] * max(0.0, added[prefix > 0][size - 1 - prefix] - experience.siblings)
            seconds = costs.seconds("second_draft", count * size) + count * REDRAFT_NODES * costs.node(8)
            self.options.append(Option(self.block_size, count, drafted.tokens + gain, drafted.seconds + seconds))
            nets.append(gain - self.rate * seconds)
        self.next_redrafts = nets.index(max(nets))
        return self.redraft(order[: self.next_redrafts])

    def redraft(self, prefixes: Sequence[int]) -> Sequence[int]:
        """Records that the step re-drafts from these prefixes, and returns them."""
        count = len(prefixes)
        self._taken = len(self.lengths) + count if count else 1 + self.lengths.index(self.block_size)
        self._redrafts = {prefix: self.block_size + self.extension - 1 - prefix for prefix in prefixes}
        return prefixes

    @property
    def min_log_probability(self) -> float:
        """Natural logarithm of the drafter probability below which no node is worth its time."""
        if self.experience is None:
            return -inf
        least = max(1e-300, self.rate * self.costs.slowdown * self.costs.cheapest)
        return min(0.0, log(least) / min(exponent.value for exponent in self.exponents))

    def prune(self, tree: TokenTree) -> TokenTree:
        """Returns the part of a tree that is worth verifying: the likeliest nodes, up to the node budget."""
        most = self.config.node_budget or len(tree)
        if self.experience is None:
            return tree.keep(most)
        reach = self._reach(tree)
        order, count = tree.likeliest(reach)[:most], 0
        while count < len(order) and reach[order[count]] > self.rate * self.costs.node(1 + count):
            count += 1
        self._expect(tree, reach, order[:count])
        return tree.keep(count, order)

    def queued(self, drafters: Drafters, proposal: Proposal) -> None:
        """Records the proposal of a step whose sizes were all determined before its first draft (``DeviceCycle``)."""
        if self.experience is None or proposal.first is None:
            return
        if self.redrafts:
            draft = FirstDraft(proposal.first, proposal.boundary)
            self.worthwhile(draft, select_likeliest(drafters, draft))
            self.redraft([block.prefix for block in proposal.branches])
        self._expect(proposal.tree, self._reach(proposal.tree), range(1, len(proposal.tree)))

    def learn(self, proposal: Proposal, outcome: TreeWalk, boundary: int | None) -> Decision | None:
        """Updates the statistics with the committed tokens of a step. Returns the decision about the step's sizes; None if not
        cost-aware.

        boundary: number of accepted tokens of the first draft; None if unknown.
        """
        experience = self.experience
        if experience is None:
            return None
        decision = self.decision()
        if not self.block_size:
            self._plain_steps += 1
            return decision
        accepted, depth = len(outcome.accepted), self.block_size - 1
        by_second = sum(self.redrafts and proposal.tree.blocks[node] > 0 for node in outcome.accepted)
        counts = accepted - by_second, by_second
        for exponent, expected, count in zip(self.exponents, self._expected, counts, strict=True):
            exponent.observe(expected, count)
        if boundary is not None and boundary in self._redrafts:
            experience.redrafts[boundary > 0].observe(accepted - boundary, self._redrafts[boundary])
        elif boundary is not None and boundary < depth:
            experience.siblings += MEAN_RATE * (accepted - boundary - experience.siblings)
        if self._looking:
            fruitful = (1 + accepted) * self.costs.plain() > sum(self._seconds())
            self._plain_steps, self._wait = 0, SHORTEST_WAIT if fruitful else min(2 * self._wait, LONGEST_WAIT)
        for estimate in (self._text, experience.drafts):
            estimate.observe(accepted, depth + self.extension * bool(self._redrafts))
        experience.after_draft += MEAN_RATE * (self._seconds()[1] - experience.after_draft)
        return decision

    def decision(self) -> Decision:
        tokens, seconds = 1.0 + sum(self._expected), sum(self._seconds())
        return Decision(tuple(self.options), self._taken, tokens, seconds, self._looking)

    def timed(self, decision: Decision | None, nodes: int, stages: StageSeconds, whole: float) -> None:
        """Updates the costs with the measured seconds of a step.

        decision: the result of ``learn``.
        nodes: tree size, anchor included.
        stages: seconds of the step's stages.
        whole: seconds of the whole step.
        """
        if decision is None:
            return
        taken = decision.options[decision.taken]
        redrafted = taken.branches * (taken.block_size + self.extension)
        for stage, rows in zip(STAGES, (taken.block_size, redrafted, nodes), strict=True):
            self.costs.observe(stage, rows, getattr(stages, stage))
            whole -= getattr(stages, stage)
        self.costs.observe_other(not taken.block_size, whole)

    def _seconds(self) -> tuple[float, float]:
        """Returns the expected seconds of this step up to the end of its first draft, and after it."""
        costs, rows = self.costs, len(self._redrafts) * (self.block_size + self.extension)
        before = costs.seconds("first_draft", self.block_size) + costs.other[not self.block_size]
        return before, costs.seconds("second_draft", rows) + costs.seconds("verify", 1 + self._nodes)

    def _reach(self, tree: TokenTree) -> list[float]:
        """Returns the estimated acceptance probability of each node of a tree."""
        first, second = (exponent.value for exponent in self.exponents)
        reach = [1.0]
        for parent, p, block in zip(tree.parents[1:], tree.probabilities[1:], tree.blocks[1:], strict=True):
            reach.append(reach[parent] * p ** (second if self.redrafts and block > 0 else first))
        return reach

    def _expect(self, tree: TokenTree, reach: Sequence[float], nodes: Sequence[int]) -> None:
        """Records which nodes are verified, and how many tokens of each drafter are expected to be accepted.

        reach: acceptance probability of each node of the tree.
        """
        second = sum(reach[node] for node in nodes if tree.blocks[node] > 0) if self.redrafts else 0.0
        self._expected, self._nodes = (sum(reach[node] for node in nodes) - second, second), len(nodes)
