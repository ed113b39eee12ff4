"""Comparison of two sets of runs: every figure of both, and the difference with its interval.

If both have the same prompts or texts, they are resampled together (a paired bootstrap): texts that are hard for one are hard
for the other, which cancels in the difference. Otherwise each is resampled separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from d2sd.calibration.boundaries import ranks
from d2sd.calibration.resampling import Estimate, Resampler, holm, p_value
from d2sd.calibration.scores import (
    chance_error,
    expected_calibration_error,
    places,
    resampled_error,
    score,
    uniform_edges,
)
from d2sd.calibration.sides import (
    MIN_BLOCK,
    Difference,
    Draws,
    Rows,
    Side,
    common_units,
    difference_of,
    ratio,
)
from d2sd.calibration.steps import MAX_BLOCKS, MIN_PROMPTS, StepTable

MIN_ROWS = 30  # of each side, to ask about a place


@dataclass(frozen=True, slots=True)
class Comparison:
    """Figures of both sides, and B − A with its interval.

    The intervals of ``figures`` hold simultaneously with 95% (Bonferroni). The p-values of positions are corrected together,
    and so are those of groups.

    unit: name of the resampling unit.
    paired: whether both sides are resampled together.
    same_drafter: whether both have the same first drafter.
    figures: those of ``FIGURES``, and "error", the ECE above the one expected by chance.
    bins: accepted share by confidence bin.
    within: [n]: share of rejected drafts whose true boundary is among the n + 1 likeliest.
    positions: [k]: accepted share of drafted token k + 1 among the drafts that reached it, up to the shorter draft length.
    groups: tokens per step by prompt group, for groups that both sides have.
    """

    unit: str
    paired: bool
    same_drafter: bool
    figures: tuple[Difference, ...]
    bins: tuple[Difference, ...]
    within: tuple[Difference, ...]
    positions: tuple[Difference, ...]
    groups: tuple[Difference, ...]


def compare(a: Side, b: Side, same_text: bool = False) -> Comparison:
    """Returns the comparison of two sets of runs.

    same_text: whether run n of both sides has the same tokens, for every n.
    """
    of_a, of_b, name, paired = common_units(a, b, same_text)
    count = [int(unit.max(initial=-1)) + 1 for unit in (of_a, of_b)]
    first = Resampler(max(count) if paired else count[0])
    second = first if paired else Resampler(count[1], seed=1)
    found = score(a.table, of_a), score(b.table, of_b)
    sides = (
        Draws(a.table, of_a, first, found[0], found[0].known()),
        Draws(b.table, of_b, second, found[1], found[1].known()),
    )
    shared = min(int(scores.position.max(initial=0)) for scores in found)
    deepest = max(int(side.table.drafted.max(initial=0)) for side in sides)
    same = bool(a.drafter) and a.drafter == b.drafter
    tests = len(FIGURES) + 1
    figures = (*(ratio(name, rows, *sides, tests) for name, rows in FIGURES.items()), _error(*sides, tests))
    bins = len(uniform_edges()) - 1
    positions = [_by_position(k, *sides) for k in range(1, shared + 1)]
    by_place = _corrected([*positions, *_by_group([a.groups, b.groups], *sides)])
    return Comparison(
        name,
        paired,
        same,
        tuple(_untested(d) if same and d.name in OF_DRAFTER else d for d in figures),
        tuple(ratio(f"bin {n}", _in_bin(n), *sides, bins) for n in range(bins)),
        tuple(ratio(f"within {n + 1}", _within(n), *sides, deepest) for n in range(deepest)),
        by_place[:shared],
        by_place[shared:],
    )


def _by_position(position: int, a: Draws, b: Draws) -> Difference:
    at = [side.observed.unit[side.observed.position == position] for side in (a, b)]
    return _asked(ratio(f"position {position}", _at_position(position), a, b, 1), at)


def _by_group(groups: Sequence[Sequence[str]], a: Draws, b: Draws) -> list[Difference]:
    """Returns tokens per step of every prompt group that both sides have; nothing if there is only one group."""
    names = [np.array(g or ["all"]) for g in groups]
    if len({*names[0], *names[1]}) < 2:
        return []
    found = []
    for name in sorted({*names[0]} & {*names[1]}):
        own = [of_run[side.table.run] == name for of_run, side in zip(names, (a, b), strict=True)]
        parts = [
            replace(side, table=side.table.take(o), unit=side.unit[o]) for side, o in zip((a, b), own, strict=True)
        ]
        one = ratio(f"group {name}", FIGURES["tokens"], parts[0], parts[1], 1)
        found.append(_asked(one, [part.unit for part in parts]))
    return found


def _asked(found: Difference, unit: Sequence[np.ndarray]) -> Difference:
    """A difference at a place with its p; ``unit``: of the rows of both sides. Too few of them say nothing: it is not asked."""
    drawn = min(len(np.unique(u)) for u in unit)
    if drawn < MIN_PROMPTS or min(map(len, unit)) < MIN_ROWS:
        return _untested(found)
    return replace(found, p=p_value(found.difference, drawn))


def _corrected(found: Sequence[Difference]) -> tuple[Difference, ...]:
    """Returns differences that are tested together, each with its corrected p."""
    return tuple(replace(d, p=p) for d, p in zip(found, holm([d.p for d in found]), strict=True))


def _untested(found: Difference) -> Difference:
    """A figure whose difference is not tested, as of one and the same network at other places of the text."""
    return replace(found, difference=Estimate(found.difference.value))


def length_difference(own: Sequence[int], other: Sequence[int]) -> Difference:
    """Returns α of two runs over the same text and its difference, given the committed tokens of their steps, (N,) and (M,),
    with equal sums."""
    steps = [np.asarray(lengths, dtype=float) for lengths in (own, other)]
    length = max(MIN_BLOCK, -(-int(steps[0].sum()) // MAX_BLOCKS))
    unit = [((np.cumsum(s) - s) // length).astype(int) for s in steps]
    resampler = Resampler(1 + max(int(u.max(initial=-1)) for u in unit))
    (a, drawn_a), (b, drawn_b) = (
        (resampler.ratio(s, np.ones(len(s)), u), resampler.ratios(s, np.ones(len(s)), u))
        for s, u in zip(steps, unit, strict=True)
    )
    value = float(steps[1].mean() - steps[0].mean())
    return Difference("tokens", a, b, resampler.figure(value, drawn_b - drawn_a), len(own), len(other))


def _error(a: Draws, b: Draws, tests: int) -> Difference:
    """ECE less ``chance_error`` on both sides: an honest drafter's ECE falls with the number of positions, which would read
    as a difference. Resamples, which are off by chance once more, are moved to lie around the figure."""
    edges, figures, drawn = uniform_edges(), [], []
    for side in (a, b):
        s = side.scores
        found = resampled_error(s, s.confidence, edges, side.resampler)
        if len(s):
            own = expected_calibration_error(s.confidence, s.accepted, edges) - chance_error(s.confidence, edges)
            found = found - np.nanmean(found) + own
        figures.append(side.resampler.figure(own, found) if len(s) else Estimate(None))
        drawn.append(found)
    return difference_of("error", figures, drawn, [len(a.scores), len(b.scores)], a, b, tests)


def _over(values: np.ndarray, where: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values over the steps that ``where`` picks, one each."""
    return values[where].astype(float), np.ones(int(where.sum())), unit[where]


def _judged(table: StepTable) -> np.ndarray:
    """Steps where there was a boundary to predict, and prefixes were chosen."""
    return table.partly & (table.selected > 0)


def _every(table: StepTable) -> np.ndarray:
    return np.ones(len(table), bool)


def _scored(side: Draws, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return values, np.ones(len(values)), side.scores.unit


FIGURES: dict[str, Rows] = {
    "tokens": lambda d: _over(d.table.committed, _every(d.table), d.unit),
    "speed": lambda d: (d.table.committed.astype(float), d.table.seconds, d.unit),
    "first": lambda d: _over(d.table.gained[:, 0], d.table.drafted > 0, d.unit),
    "hit": lambda d: _over(d.table.hit, _judged(d.table), d.unit),
    "repaired": lambda d: _over(d.table.repaired, _judged(d.table), d.unit),
    "redraft": lambda d: (d.table.gained[:, 1:-1].sum(1).astype(float), d.table.branches.astype(float), d.unit),
    "nodes": lambda d: _over(d.table.nodes.sum(1) + 1, _every(d.table), d.unit),
    "gap": lambda d: _scored(d, d.scores.accepted - d.scores.confidence),
    "brier": lambda d: _scored(d, (d.scores.accepted - d.scores.confidence) ** 2),
}


OF_DRAFTER = frozenset({"gap", "error", "brier"})  # figures of the first drafter alone


def _in_bin(number: int) -> Rows:
    def rows(side: Draws) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        here = places(side.scores.confidence, uniform_edges()) == number
        return _over(side.scores.accepted, here, side.scores.unit)

    return rows


def _within(number: int) -> Rows:
    def rows(side: Draws) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        place = ranks(side.table.confidence, side.table.boundary)
        return _over(place <= number, side.table.partly & side.table.sure, side.unit)

    return rows


def _at_position(position: int) -> Rows:
    def rows(side: Draws) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return _over(side.observed.accepted, side.observed.position == position, side.observed.unit)

    return rows
