"""Comparison of drafters, or of checkpoints of a training run, on the same recorded texts: tokens per step and acceptance.

Each drafter is compared with the first one of the list, and each checkpoint with the last checkpoint, by a paired bootstrap
over texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from d2sd.calibration.resampling import MIN_UNITS, Estimate, Ratio, Resampler, wilson
from d2sd.calibration.sentences import decimal, percent, signed_decimal, with_interval

SHOWN_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class Replayed:
    """Committed tokens per step with one drafter.

    alpha: committed tokens per step.
    difference: α minus the α of the first drafter of the list; None for that drafter. The 95% intervals of all differences in a
        table hold simultaneously (Bonferroni).
    steps: number of steps.
    """

    alpha: Estimate
    difference: Estimate | None
    steps: int


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
    names: Sequence[str], committed: Sequence[Sequence[Sequence[int]]], groups: Sequence[str],
    cut: Sequence[Sequence[bool]],
) -> list[DrafterFigures]:  # fmt: skip
    """Returns one row per drafter.

    committed: [drafter][text]: number of tokens that each step commits.
    groups: prompt group of every text.
    cut: [drafter][text]: whether the text ended within the draft of its last step.
    """
    kinds = sorted(set(groups))
    kinds = kinds if len(kinds) > 1 else []
    tests = max(1, (len(names) - 1) * (1 + len(kinds)))
    parts = {kind: [n for n, group in enumerate(groups) if group == kind] for kind in kinds}
    every = list(range(len(groups)))
    return [
        DrafterFigures(
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
    """Returns for k = 0, 1, …: the number of steps that accept at least k drafted tokens, and the number that accept more than k.

    accepted: number of drafted tokens that each step accepts.
    at_least: number of drafted tokens accepted by each step in which the text ends; this step might have accepted more.
    """
    counts = range(max([*accepted, *(a - 1 for a in at_least)], default=-1) + 1)
    return [
        (sum(a >= k for a in accepted) + sum(a > k for a in at_least), sum(a > k for a in (*accepted, *at_least)))
        for k in counts
    ]


def lines(row: DrafterFigures) -> list[str]:
    """Returns a drafter's figures as lines of text: over all texts, by prompt group, and by position."""
    shares = ", ".join(f"{k}: {f.value:.0%}" for k, f in enumerate(row.reached[:SHOWN_POSITIONS], 1))
    groups = [f"  {kind}: {_words(found)}" for kind, found in row.groups.items()]
    return [
        f"{row.name}: {_words(row.whole)}",
        *groups,
        f"  acceptance by position (among the steps that reached it): {shares or '–'}",
    ]


def _words(found: Replayed) -> str:
    words = f"α {with_interval(found.alpha, decimal, '[]')}, {found.steps} steps"
    return (
        words
        if found.difference is None
        else f"{words}; difference from the first one listed {with_interval(found.difference, signed_decimal, '[]')}"
    )


def how_replayed(rows: Sequence[DrafterFigures], texts: int) -> str:
    if texts < MIN_UNITS:
        return f"Intervals need at least {MIN_UNITS} texts."
    if len(rows) == 1:
        return "Brackets: 95% bootstrap interval over texts."
    return "Brackets: 95% bootstrap intervals over texts. The intervals of the differences hold simultaneously (Bonferroni)."


# Checkpoints of a training run: the best one, and whether it differs significantly from the last.


def compare_checkpoints(
    names: Sequence[str], committed: Sequence[Sequence[Sequence[int]]], cut: Sequence[Sequence[bool]]
) -> list[DrafterFigures]:
    """Returns one row per checkpoint, in the order of ``names``. Each is compared with the last checkpoint.

    committed, cut: as for ``compare_replays``.
    """
    names, committed, cut = ([values[-1], *values[:-1]] for values in (names, committed, cut))
    last, *others = compare_replays(names, committed, ["all"] * len(cut[0]), cut)
    return [*others, last]


def best(rows: Sequence[DrafterFigures]) -> DrafterFigures:
    """Returns the row with the highest α; if several rows have it, the last of them."""
    return max(reversed(rows), key=lambda row: row.whole.alpha.value or 0.0)


def drafter_verdict(rows: Sequence[DrafterFigures]) -> str:
    """Returns one or two sentences that name the best checkpoint and say whether it is significantly better."""
    *others, last = rows
    found = best(rows)
    alpha = f"α {with_interval(found.whole.alpha, decimal, '[]')}"
    if not others:
        return f"There is one checkpoint, {last.name}: {alpha}."
    if found is last:
        rival = best(others)
        return f"The last checkpoint, {last.name}, is the best: {alpha}. The second best, {rival.name}, differs by {_chance(rival)}."
    return (
        f"The best checkpoint is {found.name}: {alpha}. It differs from the last one, {last.name}, by {_chance(found)}."
    )


def _chance(row: DrafterFigures) -> str:
    difference = row.whole.difference or Estimate(None)
    words = with_interval(difference, signed_decimal, "[]")
    if difference.low is None:
        return f"{words}; too few texts to judge significance"
    return f"{words}, {'significant' if difference.excludes_zero else 'not significant'}"


def first_position(row: DrafterFigures) -> str:
    """Returns the share of a checkpoint's steps that accept the first drafted token, with its interval."""
    share = row.reached[0] if row.reached else Estimate(None)
    return "–" if share.value is None else with_interval(share, percent, "[]")
