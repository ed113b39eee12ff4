"""Tokens per step and acceptance by position of several drafters, or of several settings, over the same texts.

``compare_replays`` compares each drafter with one of them, the base, by a paired bootstrap over texts. A setting counts as a
drafter. A ``DraftingRun`` holds the steps of one drafter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, zip_longest
from math import isnan, nan
from statistics import fmean
from typing import Literal

import numpy as np

from d2sd.calibration.comparison import MIN_BLOCK
from d2sd.calibration.resampling import MIN_UNITS, Estimate, Resampler, wilson
from d2sd.calibration.steps import MAX_BLOCKS
from d2sd.calibration.text import decimal, signed_decimal, with_interval

# The number of tokens that each step over a text commits, and whether the text ended within the draft of its last step.
Steps = tuple[Sequence[int], bool]


@dataclass(frozen=True, slots=True)
class Replayed:
    """Committed tokens per step with one drafter.

    alpha: committed tokens per step.
    difference: α minus the α of the base; None for the base. The 95% intervals of all differences in a table hold
        simultaneously (Bonferroni).
    steps: number of steps.
    """

    alpha: Estimate
    difference: Estimate | None
    steps: int

    @property
    def words(self) -> tuple[str, str]:
        """α and its difference from the α of the base, as two texts with intervals."""
        difference = with_interval(self.difference, signed_decimal, "[]") if self.difference else ""
        return with_interval(self.alpha, decimal, "[]"), difference


@dataclass(frozen=True, slots=True)
class DrafterFigures:
    """A drafter's figures.

    whole: figures over all texts.
    groups: figures by prompt group; empty if there is only one group.
    reached: ``reached[k]`` is the share of steps that accept more than k drafted tokens, among the steps that accept at least k. If a
        text ends within a draft, only the tokens before the end count.
    """

    name: str
    whole: Replayed
    groups: dict[str, Replayed]
    reached: tuple[Estimate, ...]


def compare_replays(
    names: Sequence[str], texts: Sequence[Sequence[Steps]], groups: Sequence[str], base: int = -1
) -> list[DrafterFigures]:
    """Returns the figures of each drafter.

    names: names of the drafters.
    texts: ``texts[drafter][text]`` holds the steps of a drafter over a text. All drafters commit the same tokens.
    groups: prompt group of every text.
    base: index of the drafter with which the others are compared; by default the last one.
    """
    kinds = sorted(set(groups))
    parts = {kind: [n for n, group in enumerate(groups) if group == kind] for kind in kinds if len(kinds) > 1}
    tests = max(1, (len(names) - 1) * (1 + len(parts)))
    every, base = range(len(groups)), base % len(names)
    rows = []
    for number, (name, steps) in enumerate(zip(names, texts, strict=True)):
        others = None if number == base else texts[base]
        by_group = {kind: _replayed(steps, others, part, tests) for kind, part in parts.items()}
        rows.append(DrafterFigures(name, _replayed(steps, others, every, tests), by_group, _reached(steps)))
    return rows


def _replayed(texts: Sequence[Steps], base: Sequence[Steps] | None, part: Sequence[int], tests: int) -> Replayed:
    """Returns a drafter's figures over some of the texts.

    texts: the drafter's steps over each text.
    base: the base's steps over each text; None if the drafter is the base.
    part: indices of the texts that count.
    tests: number of differences whose intervals are to hold simultaneously.
    """
    counts, units = [], []
    for side in (texts, base or texts):
        steps = np.array([count for n in part for count in side[n][0]], float)
        if len(part) < MIN_UNITS:  # blocks of the text
            length = max(MIN_BLOCK, -(-int(steps.sum()) // MAX_BLOCKS))
            unit = ((np.cumsum(steps) - steps) // length).astype(int)
        else:
            unit = np.repeat(np.arange(len(part)), [len(side[n][0]) for n in part])
        counts.append(steps)
        units.append(unit)
    resampler = Resampler(1 + max(int(unit.max(initial=-1)) for unit in units))
    alpha, other = (resampler.resampled(s, np.ones(len(s)), u) for s, u in zip(counts, units, strict=True))
    difference = None if base is None else resampler.figure(*alpha.minus(other), tests)
    return Replayed(resampler.figure(*alpha), difference, len(counts[0]))


def _reached(texts: Sequence[Steps]) -> tuple[Estimate, ...]:
    accepted = [count - 1 for steps, cut in texts for count in (steps[:-1] if cut else steps)]
    at_least = [steps[-1] for steps, cut in texts if cut]  # if the text had gone on, the step might have accepted more
    estimates = []
    for k in range(max([*accepted, *(count - 1 for count in at_least)], default=-1) + 1):
        further = sum(count > k for count in (*accepted, *at_least))
        steps = sum(count >= k for count in accepted) + sum(count > k for count in at_least)
        # drafts may end after the last accepted position, so the share of steps that get further is left out
        if further or not k:
            estimates.append(Estimate(further / steps, *wilson(further / steps, steps)))
    return tuple(estimates)


def how_replayed(rows: Sequence[DrafterFigures], texts: int) -> str:
    """Returns a sentence that explains the intervals. texts: number of texts."""
    if rows[0].whole.alpha.low is None:
        return "The texts are too short for intervals."
    over = "texts" if texts >= MIN_UNITS else "blocks of the text"
    differences = (len(rows) - 1) * (1 + len(rows[0].groups))
    more = " The intervals of the differences hold simultaneously (Bonferroni)."
    return f"Brackets: 95% bootstrap intervals over {over}.{more if differences > 1 else ''}"


def best(rows: Sequence[DrafterFigures]) -> DrafterFigures:
    """Returns the row with the highest α; of several such rows, the last one."""
    return max(reversed(rows), key=lambda row: row.whole.alpha.value or 0.0)


def drafter_verdict(rows: Sequence[DrafterFigures]) -> str:
    """Returns two sentences: the first names the best drafter, the second compares it with the base, which is the last row.

    If the base is the best, the second sentence compares it with the second best drafter.
    """
    winner, last = best(rows), rows[-1]
    rival = best(rows[:-1]) if winner is last else winner
    other = (
        f"The second best, {rival.name}, differs" if winner is last else f"It differs from the last one, {last.name},"
    )
    difference = rival.whole.difference
    chance = (
        "too few texts to judge significance"
        if not difference or difference.low is None
        else "significant"
        if difference.excludes_zero
        else "not significant"
    )
    return f"{winner.name} is the best: α {winner.whole.words[0]}. {other} by {rival.whole.words[1]}, {chance}."


# A drafter's steps over texts: tokens per step, and acceptance by position.

Counts = Sequence[int]  # number of accepted tokens by anchor
Shape = Literal["low", "cliff", "smooth", "unclear"]
LOW = 0.6  # acceptance at position 1 that trained drafters usually exceed
FEWEST_STEPS = 20  # positions that fewer steps reached are ignored
FALL = 0.6  # acceptance ÷ acceptance of the position before, below which there is a cliff
STRICT = 3.0  # half-width of the interval in standard deviations; wide, since every position is tested


@dataclass(frozen=True, slots=True)
class TextWalk:
    """The steps of decoding over one text.

    accepted: number of accepted tokens of each step, including the tokens that the drafter is shown. In the last step, only tokens
        before the end of the text count.
    tokens: number of generated tokens.
    by_anchor: number of accepted tokens of a draft from each anchor of the text, including anchors at which no step starts.
    beliefs: for each step a list with one pair per drafted position: the probability of the drafted token by the drafter's softmax,
        and its probability of acceptance by the drafter's confidence head (NaN without a head).
    """

    accepted: tuple[int, ...]
    tokens: int
    by_anchor: Counts = ()
    beliefs: tuple[list[tuple[float, float]], ...] = ()


@dataclass(frozen=True, slots=True)
class DraftPosition:
    """Acceptance at a position of a draft.

    number: the position; the token after the anchor has position 1.
    steps: number of steps that accepted all earlier tokens.
    accepted: number of these steps that accepted this token, too.
    belief, head: mean probability of this token in these steps, by the drafter's softmax and by its confidence head; None if
        unknown.
    """

    number: int
    steps: int
    accepted: int
    belief: float | None = None
    head: float | None = None

    @property
    def share(self) -> float:
        return self.accepted / self.steps


@dataclass(frozen=True, slots=True)
class DraftingRun:
    """A drafter's steps over texts.

    walks: the steps over each text.
    block: γ.
    visible: number of tokens after the anchor that the drafter is shown.
    """

    walks: tuple[TextWalk, ...] = ()
    block: int = 0
    visible: int = 0

    @property
    def alpha(self) -> float:
        """Committed tokens per step, including the bonus token."""
        tokens, steps = self._totals
        return float(tokens.sum() / max(1, steps.sum()))

    @property
    def estimate(self) -> Estimate:
        """α with an interval over texts."""
        return text_resampler(len(self.walks)).ratio(*self._totals)

    @property
    def _totals(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of generated tokens and of steps, each as an array over texts; α is the ratio of their sums."""
        return np.array([w.tokens for w in self.walks], float), np.array([len(w.accepted) for w in self.walks], float)

    def below(self, level: float) -> bool:
        """Returns whether the interval of α, or α itself if it has no interval, is below ``level``."""
        high = self.estimate.high
        return (self.alpha if high is None else high) < level

    def change(self, base: DraftingRun, tests: int = 1) -> Estimate:
        """Returns α minus the α of ``base``. The texts of ``base`` may be other responses to the same prompts.

        tests: number of intervals that are to hold simultaneously.
        """
        resampler = text_resampler(len(self.walks))
        return resampler.figure(*resampler.resampled(*self._totals).minus(resampler.resampled(*base._totals)), tests)

    @property
    def by_anchor(self) -> list[Counts]:
        """For each text, the number of accepted tokens of a draft from each of its anchors."""
        return [walk.by_anchor for walk in self.walks]

    @property
    def positions(self) -> list[DraftPosition]:
        """Acceptance at each position after the visible tokens, up to position γ − 1 or one after the longest accepted draft.

        The last step of each text is ignored, since the text may have ended within its draft.
        """
        steps = [step for w in self.walks for step in zip_longest(w.accepted[:-1], w.beliefs[: len(w.accepted) - 1])]
        longest = max((accepted for accepted, _ in steps), default=-1)
        positions = []
        for number in range(1 + self.visible, 1 + min(self.block - 1, longest + 1)):
            reached = [(accepted, beliefs) for accepted, beliefs in steps if accepted >= number - 1]
            columns = zip(*(beliefs[number - 1 - self.visible] for _, beliefs in reached if beliefs), strict=True)
            means = [fmean(column) for column in columns] or [nan, nan]
            belief, head = (None if isnan(mean) else mean for mean in means)
            count = sum(accepted >= number for accepted, _ in reached)
            positions.append(DraftPosition(number, len(reached), count, belief, head))
        return positions

    @property
    def first(self) -> float:
        """Acceptance at the first drafted position; 0 if nothing was drafted."""
        return next((p.share for p in self.positions), 0.0)

    @property
    def shape(self) -> tuple[Shape, int | None]:
        """How acceptance changes with the position, and the position of the cliff (None without a cliff).

        "low": acceptance at the first position is low; "cliff": it is not, but acceptance drops significantly from one position to
        the next; "smooth": neither; "unclear": there are too few steps.
        """
        tested = [p for p in self.positions if p.steps >= FEWEST_STEPS]
        if not tested:
            return "unclear", None
        if tested[0].share < LOW:
            return "low", None
        for before, after in pairwise(tested):
            if wilson(after.share, after.steps, STRICT)[1] < FALL * before.share:
                return "cliff", after.number
        return "smooth", None

    @property
    def belief(self) -> tuple[float, float] | None:
        """The mean softmax probability of drafted tokens, and the accepted share of these tokens; None if probabilities are unknown.

        Only tokens up to the first rejected one of each step count.
        """
        positions = [p for p in self.positions if p.belief is not None]
        if not positions:
            return None
        steps = sum(p.steps for p in positions)
        return sum((p.belief or 0.0) * p.steps for p in positions) / steps, sum(p.accepted for p in positions) / steps


def relative_gain(counts: Sequence[Counts], base: Sequence[Counts], tests: int = 1) -> Estimate:
    """Returns the relative change of the committed tokens per draft, as a geometric mean over the texts' anchors.

    counts, base: for each text, the number of accepted tokens of the drafts from the same anchors.
    tests: number of intervals that are to hold simultaneously.
    """
    resampler, anchors = text_resampler(len(counts)), np.array(list(map(len, counts)), float)
    pairs = zip(counts, base, strict=True)
    rises = np.array([np.log1p(after).sum() - np.log1p(before).sum() for after, before in pairs])
    value, resamples = resampler.resampled(rises, anchors)
    return resampler.figure(float(np.expm1(value)), np.expm1(resamples), tests)


@lru_cache(4)
def text_resampler(texts: int) -> Resampler:
    """Returns a resampler of texts. It is cached, since all comparisons over the same texts need the same resamples."""
    return Resampler(texts)
