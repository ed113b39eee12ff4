"""Several drafters over the same recorded texts: tokens a step, in all, by prompt group and by position.

Every drafter is held against the first one, over prompts that are drawn again together (a paired bootstrap).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from d2sd.calibration.resampling import Estimate, Ratio, Resampler, wilson


@dataclass(frozen=True, slots=True)
class Replayed:
    """Committed tokens of one drafter.

    alpha: tokens a step.
    difference: α less that of the first drafter (None for itself), with an interval that holds for all drafters and groups of a
    table together with 95% (Bonferroni).
    steps: how many.
    """

    alpha: Estimate
    difference: Estimate | None
    steps: int


@dataclass(frozen=True, slots=True)
class Row:
    """A drafter's figures.

    whole: over all texts.
    groups: over those of each prompt group, where there are several.
    reached: by k, the share of its steps that accept more than k drafted tokens, among those that accept k, as far as that is
    known: where a text ended within a draft, the drafted tokens up to there count and the next one does not.
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

    committed: of every drafter, of every text, the tokens of its steps.
    groups: of every text.
    cut: of every drafter, of every text, whether it ended within its last step's draft.
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
    """Of each number of drafted tokens, from 0 on: how many steps accept as many, and how many of them accept more.

    accepted: drafted tokens that each step accepts.
    at_least: of other steps, the drafted tokens that they accept before their text ends; whether they accept more is not known.
    """
    counts = range(max([*accepted, *(a - 1 for a in at_least)], default=-1) + 1)
    return [
        (sum(a >= k for a in accepted) + sum(a > k for a in at_least), sum(a > k for a in (*accepted, *at_least)))
        for k in counts
    ]
