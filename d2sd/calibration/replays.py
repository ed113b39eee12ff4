"""Comparison of drafters, checkpoints or settings on the same recorded texts: tokens per step and acceptance by position.

Each row is compared with one of them, the base, by a paired bootstrap over texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from d2sd.calibration.comparison import MIN_BLOCK
from d2sd.calibration.resampling import MIN_UNITS, Estimate, Resampler, wilson
from d2sd.calibration.sentences import decimal, signed_decimal, with_interval
from d2sd.calibration.steps import MAX_BLOCKS

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
        """α, and its difference from the base, with intervals."""
        difference = "" if self.difference is None else with_interval(self.difference, signed_decimal, "[]")
        return with_interval(self.alpha, decimal, "[]"), difference


@dataclass(frozen=True, slots=True)
class DrafterFigures:
    """A drafter's figures.

    whole: figures over all texts.
    groups: figures by prompt group; empty if there is only one group.
    reached: [k]: among the steps that accept at least k drafted tokens, the share that accepts more than k. If a text ends within a
        draft, only the tokens before the end count.
    """

    name: str
    whole: Replayed
    groups: dict[str, Replayed]
    reached: tuple[Estimate, ...]


def compare_replays(
    names: Sequence[str], texts: Sequence[Sequence[Steps]], groups: Sequence[str], base: int = -1
) -> list[DrafterFigures]:
    """Returns one row per drafter.

    texts: [drafter][text]; every drafter commits the same tokens.
    groups: prompt group of every text.
    base: index of the drafter that the others are compared with; the last one by default.
    """
    kinds = sorted(set(groups))
    parts = {kind: [n for n, group in enumerate(groups) if group == kind] for kind in kinds if len(kinds) > 1}
    tests = max(1, (len(names) - 1) * (1 + len(parts)))
    every = range(len(groups))
    others = [None if n == base % len(names) else texts[base] for n in range(len(names))]
    return [
        DrafterFigures(
            name,
            _replayed(own, other, every, tests),
            {kind: _replayed(own, other, part, tests) for kind, part in parts.items()},
            _reached(own),
        )
        for name, own, other in zip(names, texts, others, strict=True)
    ]


def _replayed(own: Sequence[Steps], base: Sequence[Steps] | None, part: Sequence[int], tests: int) -> Replayed:
    counts, units = [], []
    for side in (own, base or own):
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
    whole = [count - 1 for text, cut in texts for count in (text[:-1] if cut else text)]
    counts = reached(whole, [text[-1] for text, cut in texts if cut])
    # drafts may end after the last accepted position, so the share of steps that get further is left out
    known = [(there, further) for k, (there, further) in enumerate(counts) if further or not k]
    return tuple(Estimate(further / there, *wilson(further / there, there)) for there, further in known)


def reached(accepted: Sequence[int], at_least: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Returns for k = 0, 1, …: the number of steps that accept at least k drafted tokens, and the number that accept more than k.

    accepted: number of drafted tokens that each step accepts.
    at_least: number of drafted tokens accepted by each step in which the text ends; this step might have accepted more.
    """
    counts = range(max([*accepted, *(a - 1 for a in at_least)], default=-1) + 1)
    return [
        (sum(a >= k for a in accepted) + sum(a > k for a in at_least), sum(a > k for a in (*accepted, *at_least)))
        for k in counts
    ]


def how_replayed(rows: Sequence[DrafterFigures], texts: int) -> str:
    """Returns a sentence about the intervals. texts: number of texts."""
    if rows[0].whole.alpha.low is None:
        return "The texts are too short for intervals."
    over = "texts" if texts >= MIN_UNITS else "blocks of the text"
    several = (len(rows) - 1) * (1 + len(rows[0].groups)) > 1
    more = " The intervals of the differences hold simultaneously (Bonferroni)." if several else ""
    return f"Brackets: 95% bootstrap intervals over {over}.{more}"


def best(rows: Sequence[DrafterFigures]) -> DrafterFigures:
    """Returns the row with the highest α; if several rows have it, the last of them."""
    return max(reversed(rows), key=lambda row: row.whole.alpha.value or 0.0)


def drafter_verdict(rows: Sequence[DrafterFigures]) -> str:
    """Returns two sentences: which of several rows is best, and whether it differs significantly from the last one, the base.

    If the base is best, the second sentence compares it with the second best row.
    """
    found, last = best(rows), rows[-1]
    rival = best(rows[:-1]) if found is last else found
    other = (
        f"The second best, {rival.name}, differs" if found is last else f"It differs from the last one, {last.name},"
    )
    difference = rival.whole.difference
    chance = (
        "too few texts to judge significance"
        if difference is None or difference.low is None
        else "significant"
        if difference.excludes_zero
        else "not significant"
    )
    return f"{found.name} is the best: α {found.whole.words[0]}. {other} by {rival.whole.words[1]}, {chance}."
