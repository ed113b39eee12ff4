"""Bootstrap intervals. The resampled units are usually prompts, and a figure is usually a ratio of two sums over units."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, isnan
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

RESAMPLES = 1000
MIN_UNITS = 4
LEVEL = 0.95
Z95 = 1.96


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured figure and its 95% interval.

    value: the figure; None without observations.
    low, high: ends of the interval; None if there are too few prompts, or blocks of text, to resample.
    """

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def excludes_zero(self) -> bool:
        """Whether the figure has an interval that does not contain 0."""
        return (self.low or 0.0) > 0 or (self.high or 0.0) < 0


class Resampled(NamedTuple):
    """A figure with its value in every resample.

    value: the figure; NaN without observations.
    resamples: value in each resample, (RESAMPLES,); NaN for resamples without observations.
    """

    value: float
    resamples: np.ndarray

    def minus(self, other: Resampled) -> Resampled:
        """Returns this figure minus another one, resample by resample. Both must have the same units, or independent resamples."""
        with np.errstate(invalid="ignore"):  # both may be infinite, if their denominators are 0
            return Resampled(self.value - other.value, self.resamples - other.resamples)


class Resampler:
    """Resamples units with replacement. The same ``count`` and ``seed`` give the same resamples, so figures can be compared.

    weights: how often each resample contains each unit, (RESAMPLES, count).
    """

    def __init__(self, count: int, seed: int = 0):
        self.count = count
        self.weights = np.zeros((RESAMPLES, count))
        draw = np.random.default_rng(seed)
        # one row at a time, since drawing all rows together would need twice the memory
        for row in self.weights if count else ():
            row[:] = draw.multinomial(count, np.full(count, 1 / count))

    def sums(self, values: np.ndarray, unit: np.ndarray | None = None) -> np.ndarray:
        """Returns the sum of the rows of ``values``, (M, …), in every resample, (RESAMPLES, …).

        unit: unit of each row, (M,); None if every row is a unit.
        """
        by_unit = values.reshape(len(values), int(np.prod(values.shape[1:], dtype=int)))
        if unit is not None:
            columns = [np.bincount(unit, weights=column, minlength=self.count) for column in by_unit.T]
            by_unit = np.stack(columns, axis=1)
        return (self.weights @ by_unit).reshape(RESAMPLES, *values.shape[1:])

    def ratio(self, numerator: np.ndarray, denominator: np.ndarray, unit: np.ndarray | None = None) -> Estimate:
        """Returns Σ numerator ÷ Σ denominator over M rows, with its interval. All arguments are (M,); ``unit`` as for ``sums``."""
        return self.figure(*self.resampled(numerator, denominator, unit))

    def mean(self, values: np.ndarray, unit: np.ndarray | None = None) -> Estimate:
        return self.ratio(values.astype(float), np.ones(len(values)), unit)

    def resampled(self, numerator: np.ndarray, denominator: np.ndarray, unit: np.ndarray | None = None) -> Resampled:
        """Returns Σ numerator ÷ Σ denominator with its resamples. Arguments: as for ``ratio``."""
        total = denominator.sum()
        value = float(numerator.sum() / total) if total else float("nan")
        with np.errstate(invalid="ignore", divide="ignore"):
            return Resampled(value, self.sums(numerator, unit) / self.sums(denominator, unit))

    def share(self, yes: np.ndarray, unit: np.ndarray) -> Estimate:
        """Returns the share of true entries of ``yes``, (M,), with its interval (see ``bounded``)."""
        return bounded(self.mean(yes, unit), len(yes))

    def figure(self, value: float, resamples: np.ndarray, tests: int = 1) -> Estimate:
        """Returns a figure with the interval of its resampled values.

        value, resamples: as in ``Resampled``.
        tests: number of intervals that are to hold simultaneously (see ``wider``).
        """
        if isnan(value):
            return Estimate(None)
        finite = resamples[np.isfinite(resamples)]
        if self.count < MIN_UNITS or len(finite) < RESAMPLES / 2:
            return Estimate(value)
        low, high = np.percentile(finite, [tail := 50 * (1 - LEVEL), 100 - tail])
        return wider(Estimate(value, float(low), float(high)), tests)


def bounded(share: Estimate, count: int) -> Estimate:
    """Returns a share of ``count`` rows. If it is 0 or 1, so that all its resamples are equal, it gets Wilson's interval."""
    if share.low is None or share.value is None or 0 < share.value < 1:
        return share
    return Estimate(share.value, *wilson(share.value, count))


def wider(figure: Estimate, tests: int) -> Estimate:
    """Returns a 95% interval widened so that ``tests`` such intervals hold simultaneously (Bonferroni).

    The factor comes from a normal distribution, since there are too few resamples for extreme quantiles.
    """
    value, low, high = figure.value, figure.low, figure.high
    if tests <= 1 or value is None or low is None or high is None:
        return figure
    together, alone = (NormalDist().inv_cdf(1 - (1 - LEVEL) / 2 / count) for count in (tests, 1))
    factor = together / alone
    return Estimate(value, value - factor * (value - low), value + factor * (high - value))


def wilson(share: float, count: int, z: float = Z95) -> tuple[float, float]:
    """Returns the Wilson interval of a share of ``count`` rows. z: half-width in standard deviations; the default gives 95%."""
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return float(max(0, centre - half)), float(min(1, centre + half))


def newcombe(a: Estimate, b: Estimate) -> Estimate:
    """Returns B − A for two shares. The interval is computed from the intervals of both shares (Newcombe 1998, method 10), so it is
    also valid for shares of 0 or 1."""
    ends = (a.value, a.low, a.high, b.value, b.low, b.high)
    if any(end is None for end in ends):
        return Estimate(None if a.value is None or b.value is None else b.value - a.value)
    share_a, low_a, high_a, share_b, low_b, high_b = (float(end or 0) for end in ends)
    down, up = hypot(share_b - low_b, high_a - share_a), hypot(high_b - share_b, share_a - low_a)
    return Estimate(share_b - share_a, share_b - share_a - down, share_b - share_a + up)
