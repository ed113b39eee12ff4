"""Several drafters over the same recorded texts: tokens per step in total, by prompt group and by position.

Every drafter is compared with the first one, by a paired bootstrap over prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from d2sd.calibration.resampling import Estimate, Ratio, Resampler, wilson


@dataclass(frozen=True, slots=True)
class Replayed:
    """Committed tokens of one drafter.

    alpha: committed tokens per step.
    difference: α minus that of the first drafter (None for the first), with an interval that holds simultaneously for all
        drafters and groups of a table with 95% (Bonferroni).
    steps: number of steps.
    """

    alpha: Estimate
    difference: Estimate | None
    steps: int


@dataclass(frozen=True, slots=True)
class Row:
    """A drafter's figures.

    whole: over all texts.
    groups: by prompt group, if there are several.
    reached: [k]: share of steps that accept more than k drafted tokens, among those that accept at least k. If a text ends
        within a draft, the tokens up to there count, and the next one does not.
    """

    name: str
    whole: Replayed
    groups: dict[str, Replayed]
    reached: tuple[Estimate, ...]


def compare_replays(
    names: Sequence[str], committed: Sequence[Sequence[Sequence[int]]], groups: Sequence[str],
    cut: Sequence[Sequence[bool]],
) -> list[Row]:  # fmt: skip
    """Returns one row per drafter.

    committed: by drafter and text, the numbers of committed tokens of the steps.
    groups: prompt group of every text.
    cut: by drafter and text, whether the text ended within the draft of its last step.
    """
    kinds = sorted(set(groups))
    kinds = kinds if len(kinds) > 1 else []
    tests = max(1, (len(names) - 1) * (1 + len(kinds)))
    parts = {kind: [n for n, group in enumerate(groups) if group == kind] for kind in kinds}
    every = list(range(len(groups)))
    return [
        Row(
            name,
            _replayed(committed, number, every, tests),
            {kind: _replayed(committed, number, part, tests) for kind, part in parts.items()},
            _reached(committed[number], cut[number]),
        )
        for number, name in enumerate(names)
    ]


def _replayed(committed: Sequence[Sequence[Sequence[int]]], number: int, texts: Sequence[int], tests: int) -> Replayed:
    unit, resampler = np.arange(len(texts)), Resampler(len(texts))

    def of(drafter: int) -> Ratio:
        tokens = np.array([sum(committed[drafter][t]) for t in texts], float)
        return tokens, np.array([len(committed[drafter][t]) for t in texts], float)

    own, base = of(number), of(0)
    difference = resampler.difference(own, base, unit, tests) if number else None
    return Replayed(resampler.ratio(*own, unit), difference, int(own[1].sum()))


def _reached(texts: Sequence[Sequence[int]], cut: Sequence[bool]) -> tuple[Estimate, ...]:
    whole = [count - 1 for text, short in zip(texts, cut, strict=True) for count in (text[:-1] if short else text)]
    counts = reached(whole, [text[-1] for text, short in zip(texts, cut, strict=True) if short])
    return tuple(Estimate(further / there, *wilson(further / there, there)) for there, further in counts)


def reached(accepted: Sequence[int], at_least: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Returns for k = 0, 1, …: the number of steps that accept at least k drafted tokens, and of those that accept more.

    accepted: number of drafted tokens that each step accepts.
    at_least: the same for steps in which the text ends; whether they would accept more is unknown.
    """
    counts = range(max([*accepted, *(a - 1 for a in at_least)], default=-1) + 1)
    return [
        (sum(a >= k for a in accepted) + sum(a > k for a in at_least), sum(a > k for a in (*accepted, *at_least)))
        for k in counts
    ]
