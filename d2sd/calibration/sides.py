"""Two sets of runs, their common resampling units, and the difference of a figure with its interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import hypot

import numpy as np

from d2sd.calibration.resampling import LEVEL, Estimate, Resampler, wider, wilson
from d2sd.calibration.scores import Scores
from d2sd.calibration.steps import MAX_BLOCKS, MIN_PROMPTS, StepTable, units

MIN_BLOCK = 16  # tokens: longer than most steps, so that a block holds the steps of both sides over the same text


@dataclass(frozen=True, slots=True)
class Side:
    """One set of runs.

    table: its steps.
    prompts: prompt of every run, by its number in the table.
    drafter: the first drafter of all runs; empty if unknown or not the same.
    groups: prompt group of every run; empty if there is only one group.
    """

    table: StepTable
    prompts: tuple[str, ...]
    drafter: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of both sides.

    difference: B − A.
    count_a, count_b: number of rows (steps, positions).
    p: p-value corrected for multiple tests (``holm``), for one of several positions or groups; its interval is not corrected.
    """

    name: str
    a: Estimate
    b: Estimate
    difference: Estimate
    count_a: int
    count_b: int
    p: float | None = None

    @property
    def clear(self) -> bool:
        """Whether the interval of the difference excludes 0, or p, if there is one, is below 5%."""
        if self.p is not None:
            return self.p < 1 - LEVEL
        low, high = self.difference.low, self.difference.high
        return low is not None and high is not None and (low > 0 or high < 0)


@dataclass(frozen=True, slots=True)
class Draws:
    """One side with its resampler. ``observed``: all positions with a known outcome; ``scores``: those with a confidence."""

    table: StepTable
    unit: np.ndarray
    resampler: Resampler
    observed: Scores
    scores: Scores


# Of one side: numerators, denominators and units of the rows that a figure is over.
Rows = Callable[[Draws], tuple[np.ndarray, np.ndarray, np.ndarray]]


def common_units(a: Side, b: Side, same_text: bool) -> tuple[np.ndarray, np.ndarray, str, bool]:
    """Returns the resampling unit of each step of both sides, the name of a unit, and whether both sides share the units."""
    ready = min(len(set(side.prompts)) for side in (a, b)) >= MIN_PROMPTS
    numbers = {prompt: n for n, prompt in enumerate(dict.fromkeys(a.prompts))}
    if ready and set(a.prompts) == set(b.prompts):
        of_a, of_b = (np.array([numbers[p] for p in side.prompts], int)[side.table.run] for side in (a, b))
        return of_a, of_b, "prompt", True
    if not ready and same_text:
        starts = [text_starts(side.table) for side in (a, b)]
        length = max(MIN_BLOCK, -(-int(a.table.committed.sum()) // MAX_BLOCKS))
        return starts[0] // length, starts[1] // length, f"block of {length} tokens", True
    (of_a, name), (of_b, other) = units(a.table), units(b.table)
    return of_a, of_b, name if name == other else f"{name} and {other}", False


def text_starts(table: StepTable) -> np.ndarray:
    """Returns the tokens committed before each step, including earlier runs, (N,)."""
    return np.cumsum(table.committed) - table.committed


def ratio(name: str, rows: Rows, a: Draws, b: Draws, tests: int) -> Difference:
    """Returns a figure of both sides; the interval of the difference is one of ``tests`` that hold simultaneously."""
    sides = [(side, *rows(side)) for side in (a, b)]
    shares = all(((n == 0) | (n == d)).all() and (d <= 1).all() for _, n, d, _ in sides)
    figures = [side.resampler.ratio(n, d, unit) for side, n, d, unit in sides]
    if shares:
        figures = [_bounded(f, int(d.sum())) for f, (_, _, d, _) in zip(figures, sides, strict=True)]
    drawn = [side.resampler.ratios(n, d, unit) for side, n, d, unit in sides]
    counts = [len(d) if name == "speed" else int(d.sum()) for _, _, d, _ in sides]
    found = difference_of(name, figures, drawn, counts, a, b, tests)
    still = found.difference.low is not None and found.difference.low == found.difference.high
    return replace(found, difference=wider(newcombe(*figures), tests)) if shares and still else found


def _bounded(figure: Estimate, count: int) -> Estimate:
    """A share of none or all of its rows: resamples are so too, so the interval is Wilson's."""
    if figure.low is None or figure.value is None or 0 < figure.value < 1:
        return figure
    return Estimate(figure.value, *wilson(figure.value, count))


def difference_of(
    name: str, figures: list[Estimate], drawn: list[np.ndarray], counts: list[int], a: Draws, b: Draws, tests: int
) -> Difference:
    of_a, of_b = figures
    if of_a.value is None or of_b.value is None:
        return Difference(name, of_a, of_b, Estimate(None), *counts)
    value = of_b.value - of_a.value
    fewer = a.resampler if a.resampler.count <= b.resampler.count else b.resampler
    return Difference(name, of_a, of_b, fewer.figure(value, drawn[1] - drawn[0], tests), *counts)


def newcombe(a: Estimate, b: Estimate) -> Estimate:
    """Returns B − A of two shares with an interval from both intervals (Newcombe 1998, method 10), for shares of 0 or 1."""
    ends = (a.value, a.low, a.high, b.value, b.low, b.high)
    if any(end is None for end in ends):
        return Estimate(None if a.value is None or b.value is None else b.value - a.value)
    share_a, low_a, high_a, share_b, low_b, high_b = (float(end or 0) for end in ends)
    down, up = hypot(share_b - low_b, high_a - share_a), hypot(high_b - share_b, share_a - low_a)
    return Estimate(share_b - share_a, share_b - share_a - down, share_b - share_a + up)
