"""Comparison of two sets of runs: figures of both sides, and differences with intervals.

If both sides have the same prompts or texts, differences use a paired bootstrap, in which the difficulty of a text cancels out.
Otherwise each side is resampled separately. The figures of one side have the same intervals as in its calibration report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from d2sd.calibration.resampling import Estimate, Resampled, Resampler, bounded, newcombe, wider
from d2sd.calibration.scores import chance_error, resampled_error
from d2sd.calibration.steps import MAX_BLOCKS, MIN_PROMPTS, Scores, StepTable, units

MIN_BLOCK = 16  # tokens; longer than most steps, so that a block holds the steps of both sides over the same text


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two sets of runs that are compared.

    table: the steps of the runs.
    prompts: prompt of every run, by the run's number in ``table``.
    drafter: fingerprint of the first drafter's weights; empty if it is unknown or differs between the runs.
    """

    table: StepTable
    prompts: tuple[str, ...]
    drafter: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of both sides, and its difference.

    name: name of the figure, as in ``Comparison.figures``.
    a, b: the figure of side A and of side B.
    difference: B − A.
    count_a, count_b: number of steps or positions from which the figure of each side is computed.
    """

    name: str
    a: Estimate
    b: Estimate
    difference: Estimate
    count_a: int
    count_b: int


@dataclass(frozen=True, slots=True)
class ResampledSide:
    """One side with its resampler.

    unit: resampling unit of each step of ``table``, (N,).
    resampler: resamples the side for the comparison.
    scores: all positions with a known outcome and a confidence.
    alone: the side with the units and the resampler of its calibration report; None if they are equal to ``unit`` and ``resampler``.
    """

    table: StepTable
    unit: np.ndarray
    resampler: Resampler
    scores: Scores
    alone: ResampledSide | None = None

    @classmethod
    def of(cls, table: StepTable, unit: np.ndarray, count: int, seed: int = 0) -> ResampledSide:
        """Returns the side with a resampler of ``count`` units. unit: unit of each step, (N,)."""
        unit_alone, _ = units(table)
        count_alone = int(unit_alone.max(initial=-1)) + 1
        same = not seed and count == count_alone and np.array_equal(unit, unit_alone)
        alone = None if same else cls.of(table, unit_alone, count_alone)
        return cls(table, unit, Resampler(count, seed), table.scores.known(), alone)


# A function that returns, for each row (step or position) of one side, a numerator, a denominator and the resampling unit. The
# figure is Σ numerators ÷ Σ denominators.
Rows = Callable[[ResampledSide], tuple[np.ndarray, np.ndarray, np.ndarray]]


def common_units(a: Side, b: Side, same_text: bool) -> tuple[np.ndarray, np.ndarray, str, bool]:
    """Returns the resampling unit of each step of A and of B, the name of a unit, and whether equal numbers mean equal units."""
    tables = a.table, b.table
    enough = min(len(set(side.prompts)) for side in (a, b)) >= MIN_PROMPTS
    if enough and set(a.prompts) == set(b.prompts):
        numbers = {prompt: n for n, prompt in enumerate(dict.fromkeys(a.prompts))}
        of_a, of_b = (np.array([numbers[p] for p in side.prompts], int)[side.table.run] for side in (a, b))
        return of_a, of_b, "prompt", True
    if same_text and not enough:
        length = max(MIN_BLOCK, -(-int(a.table.committed.sum()) // MAX_BLOCKS))
        of_a, of_b = ((np.cumsum(table.committed) - table.committed) // length for table in tables)
        return of_a, of_b, f"block of {length} tokens", True
    (of_a, name), (of_b, other) = map(units, tables)
    return of_a, of_b, name if name == other else f"{name} and {other}", False


def ratio(name: str, rows: Rows, a: ResampledSide, b: ResampledSide, tests: int = 1) -> Difference:
    """Returns a figure of both sides, and the difference B − A.

    rows: as in ``FIGURES``.
    tests: number of differences whose intervals are to hold simultaneously.
    """
    parts = [rows(side)[:2] for side in (a, b)]
    counts = [len(below) if name == "speed" else int(below.sum()) for _, below in parts]
    d = _difference(name, lambda side: side.resampler.resampled(*rows(side)), counts, a, b, tests)
    if not all(((above == 0) | (above == below)).all() and (below <= 1).all() for above, below in parts):
        return d
    # The figure is a share. If its resamples are all equal, it gets Wilson's interval, and the difference gets Newcombe's.
    shares = bounded(d.a, counts[0]), bounded(d.b, counts[1])
    constant = d.difference.low is not None and d.difference.low == d.difference.high
    difference = wider(newcombe(*shares), tests) if constant else d.difference
    return replace(d, a=shares[0], b=shares[1], difference=difference)


def _difference(
    name: str,
    figure: Callable[[ResampledSide], Resampled],
    counts: Sequence[int],
    a: ResampledSide,
    b: ResampledSide,
    tests: int,
) -> Difference:
    fewer = min(a.resampler, b.resampler, key=lambda resampler: resampler.count)
    difference = fewer.figure(*figure(b).minus(figure(a)), tests)
    of_a, of_b = (side.resampler.figure(*figure(side)) for side in (a.alone or a, b.alone or b))
    return Difference(name, of_a, of_b, difference, *counts)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Figures of both sides, and their differences. The intervals of all differences hold simultaneously (95%, Bonferroni).

    unit: name of the resampling unit of the differences.
    paired: whether both sides have the same units, and each resample contains the same units of both sides.
    same_drafter: whether both sides have the same first drafter.
    figures: the figures of ``FIGURES``, and "ece_above_chance", the ECE minus the ECE expected by chance.
    """

    unit: str
    paired: bool
    same_drafter: bool
    figures: tuple[Difference, ...]


def compare(a: Side, b: Side, same_text: bool = False) -> Comparison:
    """Returns the comparison of two sets of runs.

    same_text: whether both sides have the same texts in the same order. If this is true and there are too few prompts to resample,
        the same blocks of text are resampled on both sides.
    """
    of_a, of_b, name, paired = common_units(a, b, same_text)
    counts = [int(unit.max(initial=-1)) + 1 for unit in (of_a, of_b)]
    if paired:
        counts = [max(counts)] * 2
    # paired sides have the same seed, so that their resamples contain the same units
    sides = ResampledSide.of(a.table, of_a, counts[0]), ResampledSide.of(b.table, of_b, counts[1], 0 if paired else 1)
    # runs of plain decoding may name a drafter that they did not use, so both sides need scored positions
    same = bool(a.drafter) and a.drafter == b.drafter and all(len(side.scores) for side in sides)
    tests = len(FIGURES) + 1
    figures = (*(ratio(name, rows, *sides, tests) for name, rows in FIGURES.items()), ece_above_chance(*sides, tests))
    if same:  # a difference of calibration would only come from different positions, so it gets no interval
        figures = tuple(
            replace(d, difference=Estimate(d.difference.value)) if d.name in OF_DRAFTER else d for d in figures
        )
    return Comparison(name, paired, same, figures)


def ece_above_chance(a: ResampledSide, b: ResampledSide, tests: int = 1) -> Difference:
    """Returns the ECE minus the ECE expected by chance (``chance_error``), for both sides, and the difference B − A.

    Even a calibrated drafter has an ECE above 0 by chance, and this chance error depends on the number of positions. Resampling
    adds the chance error once more, so the resamples are shifted until their mean equals the figure.
    """

    def above_chance(side: ResampledSide) -> Resampled:
        error = resampled_error(side.scores, side.unit, side.resampler)
        value, resamples = error.value - chance_error(side.scores.confidence), error.resamples
        if len(side.scores):
            resamples = resamples - np.nanmean(resamples) + value
        return Resampled(value, resamples)

    return _difference("ece_above_chance", above_chance, [len(a.scores), len(b.scores)], a, b, tests)


def mean_rows(
    values: np.ndarray, unit: np.ndarray, where: np.ndarray | slice = slice(None)
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the ``Rows`` of a mean: values of the steps or positions that ``where`` selects, ones, and units."""
    picked = values[where].astype(float)
    return picked, np.ones(len(picked)), unit[where]


FIGURES: dict[str, Rows] = {
    "tokens": lambda d: mean_rows(d.table.committed, d.unit),
    "speed": lambda d: (d.table.committed.astype(float), d.table.seconds, d.unit),
    "first": lambda d: mean_rows(d.table.gained[:, 0], d.unit, d.table.drafted > 0),
    "hit": lambda d: mean_rows(d.table.hit, d.unit, d.table.redrafted),
    "repaired": lambda d: mean_rows(d.table.repaired, d.unit, d.table.redrafted),
    "redraft": lambda d: (d.table.gained[:, 1:-1].sum(1).astype(float), d.table.branches.astype(float), d.unit),
    "nodes": lambda d: mean_rows(d.table.nodes.sum(1) + 1, d.unit),
    "gap": lambda d: mean_rows(d.scores.accepted - d.scores.confidence, d.unit[d.scores.row]),
    "brier": lambda d: mean_rows((d.scores.confidence - d.scores.accepted) ** 2, d.unit[d.scores.row]),
}
OF_DRAFTER = frozenset({"gap", "brier", "ece_above_chance"})  # figures of the first drafter alone


def first_difference(one: Sequence[Any], other: Sequence[Any]) -> int | None:
    """Returns the length of the common prefix of two texts (in characters) or lists, or None if they are equal."""
    if one == other:
        return None
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (x, y) in pairs if x != y), min(len(one), len(other)))
