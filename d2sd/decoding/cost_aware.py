"""Decisions of a cost-aware step: whether to draft, γ, the prefixes to re-draft from, and the number of nodes to verify.

Every choice maximises expected tokens − ρ · expected seconds, where ρ is the best expected rate in tokens per second. Choices
depend only on committed tokens, the drafts of this step and measured times, so they do not change the text. Expected tokens
come from discounted counts with a prior. Expected seconds come from a table of stage costs, corrected by the measured times of
the run. No choice is random.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from itertools import accumulate
from math import exp, inf, log
from operator import mul

from d2sd.config import DecodeConfig
from d2sd.costs.machines import STAGES, Machine
from d2sd.methods import METHODS, FirstDraft, Proposal
from d2sd.trace.events import Decision, Option, StageSeconds
from d2sd.tree.boundary import open_prefixes, select_prefixes
from d2sd.tree.tree import TokenTree
from d2sd.tree.walk import TreeWalk

MACHINE_RATE, STAGE_RATE = 0.05, 0.01  # update rates of the slowdown and of the stages' overheads
OUTLIER = 1.0  # limit of |log(measured ÷ expected)| for one measured time
OVERHEAD_DECAY = 0.999  # factor on a stage's overhead, per step
# Discounts per step: the counts of one text remember 25 steps, the counts of all texts remember 100.
TEXT_KEEP, ALL_KEEP = 0.96, 0.99
MEAN_RATE = 0.1  # update rate of the other running means
REDRAFT_NODES = 3  # usual number of verified nodes per re-draft
SHORTEST_WAIT, LONGEST_WAIT = 4, 128  # plain steps before drafting is tried again; doubled after a failed try


class AcceptanceByDepth:
    """Acceptance probability of a drafted token by its depth, given that all tokens before it were accepted.

    The prior of a depth counts as ``WEIGHT`` observations. The prior probability is ``usual[depth]``, times the ratio of the
    estimate to ``usual`` at the previous depth.

    keep: factor by which each observation discounts the earlier counts.
    usual: usual probabilities by depth; ``START`` for further depths.
    """

    WEIGHT, START = 2.0, 0.65

    def __init__(self, keep: float = 1.0, usual: Sequence[float] = ()):
        self._keep, self._usual = keep, usual
        self._counts: dict[int, tuple[float, float]] = {}  # numbers of accepted and tried tokens by depth

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
        """Update with a draft of ``drafted`` tokens, of which the first ``accepted`` were accepted."""
        self.forget(self._keep)
        for k in range(min(accepted + 1, drafted)):
            right, tried = self._counts.get(k, (0.0, 0.0))
            self._counts[k] = right + (k < accepted), tried + 1.0

    def forget(self, keep: float) -> None:
        self._counts = {k: (keep * right, keep * tried) for k, (right, tried) in self._counts.items()}


class Calibration:
    """Maps a drafter's probabilities p to p^κ. κ is adapted until expected and accepted tokens agree on average."""

    RATE, LIMIT = 0.05, 4.0

    def __init__(self) -> None:
        self.exponent = 1.0

    def observe(self, expected: float, accepted: int) -> None:
        """Update with the expected and the actual number of accepted tokens of a step's tree."""
        surprise = max(-2.0, (expected - accepted) / (1.0 + expected))
        self.exponent = max(1 / self.LIMIT, min(self.LIMIT, self.exponent * exp(self.RATE * surprise)))


class RunningCosts:
    """Stage times of a machine, corrected while running: seconds = slowdown · (table + overhead of the stage).

    The slowdown is the same for all stages. A stage has one overhead for passes of one row (plain decoding), and another
    for longer passes.
    """

    def __init__(self, table: Machine):
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
        """Update with the measured seconds of a stage with this many rows."""
        expected, key = self.seconds(stage, rows), (stage, rows == 1)
        if min(expected, seconds) > 0:
            surprise = max(-OUTLIER, min(OUTLIER, log(seconds / expected)))
            overhead = OVERHEAD_DECAY * self._overhead.get(key, 0.0)
            self._overhead[key] = overhead + STAGE_RATE * surprise * expected / self.slowdown
            self.slowdown *= exp(MACHINE_RATE * surprise)

    def observe_other(self, plain: bool, seconds: float) -> None:
        """Update with the measured seconds of a step outside its stages."""
        most = 2 * self.other[plain] + 0.1 * self.plain()
        self.other[plain] += MACHINE_RATE * (max(0.0, min(seconds, most)) - self.other[plain])


class Experience:
    """Statistics that all generations with one method share in an engine."""

    def __init__(self, table: Machine):
        self.costs = RunningCosts(table)
        self.drafts = AcceptanceByDepth(ALL_KEEP)
        # Re-drafts from the true boundary, by whether the prefix has tokens: from empty ones, they often repeat the rejected token.
        self.redrafts = {whole: AcceptanceByDepth() for whole in (False, True)}
        self.siblings = 0.0  # mean number of tokens accepted after a true boundary that was not re-drafted from
        self.after_draft = self.costs.seconds("verify", 4)  # mean seconds per step of re-drafting and verifying
        self.calibrations = Calibration(), Calibration()  # of the first and the second drafter


class Controller:
    """Makes the decisions of one generation.

    A step calls ``begin``, ``redraft`` if there is a first draft, ``nodes`` if there is a tree, and reports its outcome with
    ``observe`` and ``timed``. A step that is queued as a whole takes its sizes from ``begin`` and ``next_redrafts``.

    lengths: values of γ to choose from, ascending.
    extension: γ₂ − γ.
    """

    def __init__(self, experience: Experience, lengths: Sequence[int], extension: int = 0):
        self.experience, self.costs, self.lengths, self.extension = experience, experience.costs, lengths, extension
        self._depth = lengths[-1] - 1 + extension
        self._text = AcceptanceByDepth(TEXT_KEEP, experience.drafts.chances(self._depth))
        self._wait, self._plain_steps = SHORTEST_WAIT, 0
        self.next_redrafts = 0  # number of re-drafts that would have been best for the last draft

    def begin(self) -> int:
        """Returns γ of this step's first draft; 0 for plain decoding."""
        costs, tokens = self.costs, self._text.tokens(self._depth)
        self._options = [Option(0, 0, 1.0, costs.plain())]
        for size in self.lengths:
            seconds = costs.seconds("first_draft", size) + self.experience.after_draft + costs.other[False]
            self._options.append(Option(size, 0, 1.0 + tokens[size - 1 + self.extension], seconds))
        rates = [option.tokens / option.seconds for option in self._options]
        self.rate, drafting = max(rates), rates.index(max(rates[1:]), 1)
        pays = rates[drafting] > rates[0]
        self._looking = not pays and self._plain_steps >= self._wait
        self._taken = drafting if pays or self._looking else 0
        self.block_size = self._options[self._taken].block_size
        self._redrafts: dict[int, int] = {}  # number of re-drafted tokens by prefix
        self._expected, self._nodes = (0.0, 0.0), 0  # expected accepted tokens by drafter
        return self.block_size

    def redraft(
        self, confidence: Sequence[float], prefixes: Sequence[int], planned: Sequence[int] | None = None
    ) -> tuple[int, ...]:
        """Returns the prefix lengths that are worth a re-draft, in descending order of r(i).

        The expected gain of a re-draft is r(i) times the tokens that a re-draft from the true boundary adds.

        confidence: c_1 … c_{γ−1} of the first draft.
        prefixes: the prefix lengths to choose from.
        planned: prefixes that were already re-drafted from. If given, they are returned, and nothing is chosen.
        """
        costs, size, exponent = self.costs, self.block_size + self.extension, self.exponents[0]
        reach = list(accumulate((c**exponent for c in confidence), mul, initial=1.0))
        boundary = [here - further for here, further in zip(reach, [*reach[1:], 0.0], strict=True)]
        order = sorted(prefixes, key=boundary.__getitem__, reverse=True)
        added = {whole: estimate.tokens(size - 1) for whole, estimate in self.experience.redrafts.items()}
        for estimate in self.experience.redrafts.values():
            estimate.forget(ALL_KEEP)  # so that re-drafts that did not pay are eventually tried again
        drafted, gain, nets = self._options[self._taken], 0.0, [0.0]
        for count, prefix in enumerate(order, 1):
            gain += boundary[prefix] * max(0.0, added[prefix > 0][size - 1 - prefix] - self.experience.siblings)
            seconds = costs.seconds("second_draft", count * size) + count * REDRAFT_NODES * costs.node(8)
            self._options.append(Option(self.block_size, count, drafted.tokens + gain, drafted.seconds + seconds))
            nets.append(gain - self.rate * seconds)
        self.next_redrafts = nets.index(max(nets))
        chosen = tuple(order[: self.next_redrafts] if planned is None else planned)
        self._taken = len(self.lengths) + len(chosen) if chosen else self._taken
        self._redrafts = {prefix: size - 1 - prefix for prefix in chosen}
        return chosen

    @property
    def exponents(self) -> tuple[float, ...]:
        """κ of the first and second drafter: a token with drafter probability p is accepted with probability p^κ."""
        return tuple(calibration.exponent for calibration in self.experience.calibrations)

    @property
    def min_log_probability(self) -> float:
        """Natural logarithm of the drafter probability below which no node is worth its time."""
        return min(0.0, log(max(1e-300, self.rate * self.costs.slowdown * self.costs.cheapest)) / min(self.exponents))

    def nodes(self, reach: Sequence[float], by_second: Sequence[bool], most: int, planned: bool = False) -> int:
        """Returns the number of nodes below the anchor that are worth verifying, at most ``most``.

        reach: probability of acceptance of each node, descending.
        by_second: for each node, whether the second drafter proposed it.
        planned: whether ``most`` nodes are verified regardless of their cost.
        """
        cost, rate, most = self.costs.node, self.rate, min(most, len(reach))
        count = most if planned else next((n for n in range(most) if reach[n] <= rate * cost(1 + n)), most)
        second = sum(r for r, other in zip(reach[:count], by_second, strict=False) if other)
        self._expected, self._nodes = (sum(reach[:count]) - second, second), count
        return count

    def decision(self) -> Decision:
        tokens, seconds = 1.0 + sum(self._expected), sum(self._seconds())
        return Decision(tuple(self._options), self._taken, tokens, seconds, self._looking)

    def _seconds(self) -> tuple[float, float]:
        """Returns the expected seconds of this step up to the end of its first draft, and after it."""
        costs, rows = self.costs, len(self._redrafts) * (self.block_size + self.extension)
        before = costs.seconds("first_draft", self.block_size) + costs.other[not self.block_size]
        return before, costs.seconds("second_draft", rows) + costs.seconds("verify", 1 + self._nodes)

    def observe(self, accepted: int, by_second: int, boundary: int | None) -> None:
        """Update the statistics with the outcome of the step.

        accepted: number of accepted drafted tokens; the second drafter proposed ``by_second`` of these.
        boundary: number of accepted tokens of the first draft; None if unknown.
        """
        if not self.block_size:
            self._plain_steps += 1
            return
        known, depth = self.experience, self.block_size - 1
        known.calibrations[0].observe(self._expected[0], accepted - by_second)
        known.calibrations[1].observe(self._expected[1], by_second)
        if boundary is not None and boundary in self._redrafts:
            known.redrafts[boundary > 0].observe(accepted - boundary, self._redrafts[boundary])
        elif boundary is not None and boundary < depth:
            known.siblings += MEAN_RATE * (accepted - boundary - known.siblings)
        if self._looking:
            fruitful = (1 + accepted) * self.costs.plain() > sum(self._seconds())
            self._plain_steps, self._wait = 0, SHORTEST_WAIT if fruitful else min(2 * self._wait, LONGEST_WAIT)
        for estimate in (self._text, known.drafts):
            estimate.observe(accepted, depth + self.extension * bool(self._redrafts))
        known.after_draft += MEAN_RATE * (self._seconds()[1] - known.after_draft)

    def timed(self, decision: Decision, nodes: int, stages: StageSeconds, whole: float) -> None:
        """Update the costs with the measured seconds of the stages and of the whole step; nodes: tree size, anchor included."""
        taken = decision.options[decision.taken]
        redrafted = taken.branches * (taken.block_size + self.extension)
        for stage, rows in zip(STAGES, (taken.block_size, redrafted, nodes), strict=True):
            self.costs.observe(stage, rows, getattr(stages, stage))
            whole -= getattr(stages, stage)
        self.costs.observe_other(not taken.block_size, whole)


class StepPlan:
    """Fixed step sizes, taken from the settings.

    block_size: γ.
    config: resolved settings.
    """

    def __init__(self, block_size: int, config: DecodeConfig):
        self.block_size, self.config = block_size, config

    @property
    def min_log_probability(self) -> float:
        """Log probability below which paths of a tree are not grown."""
        return -inf

    def begin(self) -> int:
        """Returns γ of the step that begins; 0 for a step of plain decoding."""
        return self.block_size

    def worthwhile(self, draft: FirstDraft, prefixes: Sequence[int]) -> Sequence[int]:
        """Returns the selected prefixes that are worth a re-draft; with fixed sizes, all of them."""
        return prefixes

    def prune(self, tree: TokenTree) -> TokenTree:
        """Returns the part of a tree to verify."""
        return tree.keep(self.config.node_budget or len(tree))

    def queued(self, proposal: Proposal) -> None:
        """Record the proposal of a step whose sizes were all chosen before its first draft, as in a ``DeviceCycle``."""

    def learn(self, proposal: Proposal, outcome: TreeWalk, boundary: int | None) -> Decision | None:
        """Update the statistics with the committed tokens of a step. Returns the decision about its sizes, if there was one.

        boundary: number of accepted tokens of the first draft; None if unknown.
        """
        return None

    def timed(self, decision: Decision | None, nodes: int, stages: StageSeconds, whole: float) -> None:
        """Update the costs with the measured seconds of a step, as ``Controller.timed``."""


class CostAwarePlan(StepPlan):
    """Step sizes chosen by a ``Controller``, with the settings as upper limits.

    end_ids: tokens that end a text.
    """

    def __init__(self, controller: Controller, config: DecodeConfig, end_ids: Collection[int]):
        super().__init__(controller.lengths[-1], config)
        self.controller, self.end_ids = controller, end_ids
        self.redrafts = METHODS[config.method].second_drafter != "none"

    @property
    def min_log_probability(self) -> float:
        return self.controller.min_log_probability

    def begin(self) -> int:
        return self.controller.begin()

    def worthwhile(self, draft: FirstDraft, prefixes: Sequence[int]) -> Sequence[int]:
        return self.controller.redraft(draft.block.confidence, prefixes) if draft.block and prefixes else prefixes

    def prune(self, tree: TokenTree) -> TokenTree:
        most = self.config.node_budget or len(tree)
        reach, again = self._reach(tree)
        order = tree.likeliest(reach)
        count = self.controller.nodes([reach[n] for n in order], [again[n] for n in order], most)
        return tree.keep(count, order)

    def queued(self, proposal: Proposal) -> None:
        first, extension = proposal.first, self.controller.extension
        if first is None:
            return
        usable = open_prefixes(first.ids, self.end_ids)
        if self.redrafts:
            prefixes = select_prefixes(proposal.boundary.posterior[:usable], self.config.num_branches)
            whole = (len(first.ids),) if extension and usable > len(first.ids) else ()
            planned = [block.prefix for block in proposal.branches]
            self.controller.redraft(first.confidence, (*prefixes, *whole), planned)
        reach, again = self._reach(proposal.tree)
        self.controller.nodes(reach[1:], again[1:], len(reach), planned=True)

    def learn(self, proposal: Proposal, outcome: TreeWalk, boundary: int | None) -> Decision:
        again = sum(self._by_second(proposal.tree, node) for node in outcome.accepted)
        decision = self.controller.decision()
        self.controller.observe(len(outcome.accepted), again, boundary)
        return decision

    def timed(self, decision: Decision | None, nodes: int, stages: StageSeconds, whole: float) -> None:
        assert decision is not None, "the result of `learn`"
        self.controller.timed(decision, nodes, stages, whole)

    def _by_second(self, tree: TokenTree, node: int) -> bool:
        return self.redrafts and tree.blocks[node] > 0

    def _reach(self, tree: TokenTree) -> tuple[list[float], list[bool]]:
        """Returns the acceptance probability of each node, and whether the second drafter proposed it."""
        first, second = self.controller.exponents
        reach, again = [1.0], [self._by_second(tree, node) for node in range(len(tree))]
        for parent, p, other in zip(tree.parents[1:], tree.probabilities[1:], again[1:], strict=True):
            reach.append(reach[parent] * p ** (second if other else first))
        return reach, again
