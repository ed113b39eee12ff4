"""Alternatives to the softmax confidence: the softmax with a temperature for every position, and a trained confidence head.

Both alternatives are scored on the same positions as the softmax, so differences from the softmax use a paired bootstrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from d2sd.calibration.boundaries import USUAL_K, DraftConfidence, draft_confidence, prefix_ranks, ranks
from d2sd.calibration.comparison import FIGURES, Difference, ResampledSide, ece_above_chance, mean_rows, ratio
from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.calibration.scores import resampled_error
from d2sd.calibration.steps import RunTables, Scores
from d2sd.trace.events import TEMPERATURES

# Sequential temperature scaling: one temperature per position, fitted from left to right. It calibrates the product of the
# confidences, which is the probability that all tokens up to a position are accepted. Prefixes are selected by this product.
# Temperatures that are fitted to each position alone may leave the product uncalibrated.
#
# A step may hold the probability of every drafted token at ``TEMPERATURES``. With the probability at temperature 1, which is the
# confidence, this gives the confidence at each of ``GRID``. Between these temperatures, the log-odds are interpolated linearly in
# the logarithm of the temperature. On logits of the bundled drafters the error is at most 0.025.

EDGE = 1e-6
GRID = tuple(sorted((*TEMPERATURES, 1.0)))
TRIED, ROUNDS = 13, 3  # temperatures per round, and number of rounds; the last one narrows the range to 1%
MIN_FITTED_POSITIONS = 50
MIN_OUTCOMES = 30  # needed to fit a position; with fewer, the position takes the previous position's temperature


@dataclass(frozen=True, slots=True)
class TemperatureAdvice:
    """Softmax temperatures, fitted on every second resampling unit, and their effect on the other units.

    The effect is measured without these temperatures ("before") and with them ("after").

    temperatures: one for each position of a draft.
    error_before, error_after: ECE of the predicted probability that the first k tokens are all accepted, over all steps and all k
        with a known outcome.
    improvement: error_before − error_after.
    hits_before, hits_after: share of the re-drafted steps whose true boundary is among the K likeliest prefixes. K is the number
        of prefixes that the step selected. None if there is no such step.
    changed: share of the steps with selected prefixes that would select other prefixes; None if there is no such step.
    """

    temperatures: tuple[float, ...]
    error_before: float
    error_after: float
    improvement: Estimate
    hits_before: float | None
    hits_after: float | None
    changed: float | None


def grid_confidence(confidence: np.ndarray, tempered: np.ndarray) -> np.ndarray:
    """Returns the confidence at each temperature of ``GRID``, (…, len(GRID)).

    confidence: the confidence at temperature 1, (…).
    tempered: the confidence at ``TEMPERATURES``, (…, len(TEMPERATURES)).
    """
    return np.insert(tempered, GRID.index(1.0), confidence, axis=-1)


def at_temperature(grid: np.ndarray, temperature: float) -> np.ndarray:
    """Returns the confidence at a temperature, (…), interpolated from the confidence at the temperatures of ``GRID``.

    grid: the confidence at each temperature of ``GRID``, (…, len(GRID)).
    temperature: a temperature from the smallest to the largest one of ``GRID``.
    """
    place = float(np.interp(np.log(temperature), np.log(GRID), np.arange(len(GRID))))
    low = min(int(place), len(GRID) - 2)
    before, after = (_log_odds(grid[..., n]) for n in (low, low + 1))
    return 1 / (1 + np.exp(-(before + (place - low) * (after - before))))


def _log_odds(confidence: np.ndarray) -> np.ndarray:
    clipped = np.clip(confidence.astype(float), EDGE, 1 - EDGE)
    return np.log(clipped / (1 - clipped))


def fit_temperature(grid: np.ndarray, accepted: np.ndarray, before: np.ndarray | float = 1.0) -> float:
    """Returns the maximum-likelihood temperature, from the smallest to the largest one of ``GRID``.

    grid: the confidence of M tokens at each temperature of ``GRID``, (M, len(GRID)).
    accepted: 1 if the token and all previous tokens of its draft were accepted, else 0, (M,).
    before: predicted probability that all previous tokens of the draft are accepted, (M,).
    """
    low, high, best = GRID[0], GRID[-1], 1.0
    for _ in range(ROUNDS):
        tried = np.geomspace(low, high, TRIED)
        index = int(np.argmax([likelihoods(grid, accepted, t, before).sum() for t in tried]))
        low, high, best = tried[max(0, index - 1)], tried[min(TRIED - 1, index + 1)], tried[index]
    return float(best)


def likelihoods(
    grid: np.ndarray, accepted: np.ndarray, temperature: float, before: np.ndarray | float = 1.0
) -> np.ndarray:
    """Returns the log-likelihood of each entry of ``accepted`` at a temperature, (M,). Arguments: see ``fit_temperature``."""
    probability = np.clip(before * at_temperature(grid, temperature), EDGE, 1 - EDGE)
    return np.asarray(np.log(np.where(accepted > 0, probability, 1 - probability)))


def fit_temperatures(grid: np.ndarray, survived: np.ndarray, observed: np.ndarray) -> tuple[float, ...]:
    """Returns the maximum-likelihood temperature of every position, fitted from left to right.

    grid: the confidence at each temperature of ``GRID``, of N steps at G positions, (N, G, len(GRID)).
    survived: whether all tokens up to each position were accepted, (N, G).
    observed: whether ``survived`` is known, (N, G).
    """
    before, latest, temperatures = np.ones(len(grid)), 1.0, list[float]()
    for k in range(grid.shape[1]):
        rows = observed[:, k]
        if rows.sum() >= MIN_OUTCOMES:
            latest = fit_temperature(grid[rows, k], survived[rows, k], before[rows])
        temperatures.append(latest)
        before = before * at_temperature(grid[:, k], latest)
    return tuple(temperatures)


def scaled(grid: np.ndarray, temperatures: Sequence[float]) -> np.ndarray:
    """Returns the confidence at a separate temperature for every position, (N, G). grid: as for ``fit_temperatures``."""
    return np.stack([at_temperature(grid[:, k], t) for k, t in enumerate(temperatures)], axis=1)


def temperature_advice(tables: RunTables, unit: np.ndarray, resampler: Resampler) -> TemperatureAdvice | None:
    """Returns fitted temperatures and their effect.

    unit: resampling unit of each step, (N,). Temperatures are fitted on the even units and judged on the odd ones.

    Returns None if the even or the odd units have fewer than ``MIN_FITTED_POSITIONS`` scored positions whose probabilities at
    ``TEMPERATURES`` were recorded.
    """
    if not tables.tempered.size:
        return None
    table = tables.table
    grid = grid_confidence(table.confidence, tables.tempered)
    recorded = ~np.isnan(grid).any(2)
    fit, judge = (recorded & (unit % 2 == half)[:, None] for half in (0, 1))
    if min((fit & table.scored).sum(), (judge & table.scored).sum()) < MIN_FITTED_POSITIONS:
        return None
    positions = np.arange(recorded.shape[1])
    survived = positions < table.matched[:, None]
    # After a rejection, no token is accepted. Positions beyond the verified nodes are left out, since their outcome is unknown.
    observed = survived | (table.rejected[:, None] & (positions <= table.nodes[:, :1]))
    temperatures = fit_temperatures(grid, survived, fit & observed)
    row, index = np.nonzero(judge & observed)
    judged = judge.any(1)
    redrafted, chosen = judged & table.redrafted, judged & (table.selected > 0)
    errors, hits, selections = [], list[float | None](), []
    for confidence in (table.confidence, scaled(grid, temperatures)):
        survival = np.cumprod(confidence, axis=1)[row, index]
        errors.append(resampled_error(Scores(row, index + 1, survival, survived[row, index]), unit, resampler))
        within = ranks(confidence[redrafted], table.boundary[redrafted]) < table.selected[redrafted]
        hits.append(float(within.mean()) if len(within) else None)
        selections.append(prefix_ranks(confidence[chosen]) < table.selected[chosen, None])
    before, after = errors
    return TemperatureAdvice(
        temperatures=temperatures,
        error_before=before.value,
        error_after=after.value,
        improvement=resampler.figure(*before.minus(after)),
        hits_before=hits[0],
        hits_after=hits[1],
        changed=float((selections[0] != selections[1]).any(1).mean()) if chosen.any() else None,
    )


# A trained confidence head.


@dataclass(frozen=True, slots=True)
class Head(DraftConfidence):
    """Figures of the drafter's trained confidence head, over the steps that have both the head and softmax confidences.

    In ``ranks``, figures of re-drafts count only prefixes that the head selected (``confidence`` = "head").

    differences: "brier" and "ece_above_chance" as in a ``Comparison``, and "likeliest", the share of steps whose true boundary is among
        the k likeliest. Side A is the softmax on the same steps, side B the head.
    k: K of the runs, or ``USUAL_K``.
    """

    differences: tuple[Difference, ...]
    k: int


def head_report(
    tables: RunTables, unit: np.ndarray, resampler: Resampler, num_branches: int | None, selects: bool
) -> Head | None:
    """Returns the figures of the confidence head; None without a head.

    unit: resampling unit of each step, (N,).
    num_branches: K of the runs; None if it is unknown or differs.
    selects: whether the head, not the softmax, selected the prefixes to re-draft from.
    """
    softmax, head = tables.table, tables.by_head
    if head is None:
        return None
    both = softmax.has_confidence & head.has_confidence
    softmax, head, unit = softmax.take(both), head.take(both), unit[both]
    if not selects:  # figures of re-drafts are not about the head
        head = replace(head, selected=np.zeros_like(head.selected))
    a, b = (ResampledSide(table, unit, resampler, table.scores) for table in (softmax, head))
    k = num_branches or min(USUAL_K, softmax.confidence.shape[1])

    def likeliest(side: ResampledSide) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return mean_rows(ranks(side.table.confidence, side.table.boundary) < k, unit, side.table.rejected)

    return Head(
        **draft_confidence(head, head.scores, unit, resampler, num_branches if selects else None),
        differences=(
            ece_above_chance(a, b),
            ratio("brier", FIGURES["brier"], a, b),
            ratio("likeliest", likeliest, a, b),
        ),
        k=k,
    )
