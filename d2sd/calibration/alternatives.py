"""Alternatives to the softmax confidence: the softmax with a temperature for every position, and a trained confidence head.

Both alternatives are scored on the same positions as the softmax, so differences from the softmax use a paired bootstrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from d2sd.calibration.boundaries import ranks
from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.calibration.scores import Scores, resampled_error, score
from d2sd.calibration.steps import UNSEEN, StepTable, widened
from d2sd.trace.events import TEMPERATURES
from d2sd.tree.boundary import boundary_posteriors

# Sequential temperature scaling: one temperature per position, fitted from left to right. It calibrates the product of the
# confidences, which is the probability that all tokens up to a position are accepted. Prefixes are selected by this product.
# Temperatures that are fitted to each position alone may leave the product uncalibrated.
#
# Steps may hold the probability of every drafted token at several temperatures. Between these, the log-odds are interpolated
# linearly in the logarithm of the temperature. On logits of the bundled drafters the error is at most 0.025.

EDGE = 1e-6
KNOWN = (*(t for t in TEMPERATURES if t < 1), 1.0, *(t for t in TEMPERATURES if t > 1))
AT_ONE = KNOWN.index(1.0)
TRIED, ROUNDS = 13, 3  # temperatures per round, and number of rounds; the last one narrows the range to 1%
MIN_FITTED_POSITIONS = 50
MIN_OUTCOMES = 30  # per position; with fewer, a position takes the previous position's temperature


@dataclass(frozen=True, slots=True)
class TemperatureAdvice:
    """Temperatures by position, fitted on every second resampling unit, and their effect on the other units.

    "Before" is without these temperatures, "after" with them.

    temperatures: one per position.
    error_before, error_after: ECE of the probability that the first k tokens are all accepted, for all k with a known outcome.
    improvement: error_before − error_after.
    hits_before, hits_after: share of steps whose true boundary is among the K likeliest prefixes, where K is the number of
        prefixes that the step selected; None without re-drafts.
    changed: share of steps that would select other prefixes; None if no step selected prefixes.
    """

    temperatures: tuple[float, ...]
    error_before: float
    error_after: float
    improvement: Estimate
    hits_before: float | None
    hits_after: float | None
    changed: float | None


def curves(confidence: np.ndarray, tempered: np.ndarray) -> np.ndarray:
    """Joins ``confidence``, (…), at temperature 1, and ``tempered``, (…, len(TEMPERATURES)), in the order of ``KNOWN``."""
    return np.insert(tempered, AT_ONE, confidence, axis=-1)


def at_temperature(curve: np.ndarray, temperature: float) -> np.ndarray:
    """Returns the confidence, (…), at a temperature within the range of ``KNOWN``. curve: result of ``curves``."""
    place = float(np.interp(np.log(temperature), np.log(KNOWN), np.arange(len(KNOWN))))
    low = min(int(place), len(KNOWN) - 2)
    before, after = (_log_odds(curve[..., n]) for n in (low, low + 1))
    return 1 / (1 + np.exp(-(before + (place - low) * (after - before))))


def _log_odds(confidence: np.ndarray) -> np.ndarray:
    clipped = np.clip(confidence.astype(float), EDGE, 1 - EDGE)
    return np.log(clipped / (1 - clipped))


def fit_temperature(curve: np.ndarray, accepted: np.ndarray, before: np.ndarray | float = 1.0) -> float:
    """Returns the maximum-likelihood temperature, within the range of ``KNOWN``.

    curve: result of ``curves``, (M, len(KNOWN)).
    accepted: whether the token and all previous ones were accepted, 0 or 1, (M,).
    before: predicted probability that all previous tokens are accepted, (M,).
    """
    low, high, best = KNOWN[0], KNOWN[-1], 1.0
    for _ in range(ROUNDS):
        tried = np.geomspace(low, high, TRIED)
        fits = [float(likelihoods(curve, accepted, t, before).sum()) for t in tried]
        at = int(np.argmax(fits))
        low, high, best = tried[max(0, at - 1)], tried[min(TRIED - 1, at + 1)], tried[at]
    return float(best)


def likelihoods(
    curve: np.ndarray, accepted: np.ndarray, temperature: float, before: np.ndarray | float = 1.0
) -> np.ndarray:
    """Returns the log-likelihood of each outcome at a temperature, (M,); arguments as for ``fit_temperature``."""
    sure = np.clip(before * at_temperature(curve, temperature), EDGE, 1 - EDGE)
    found: np.ndarray = np.log(np.where(accepted > 0, sure, 1 - sure))
    return found


def fit_temperatures(curve: np.ndarray, survived: np.ndarray, observed: np.ndarray) -> tuple[float, ...]:
    """Returns the maximum-likelihood temperature of every position, fitted from left to right.

    curve: result of ``curves`` for N steps and G positions, (N, G, len(KNOWN)).
    survived: whether all tokens up to each position were accepted, (N, G).
    observed: whether ``survived`` is known, (N, G).
    """
    before, latest, found = np.ones(len(curve)), 1.0, list[float]()
    for k in range(curve.shape[1]):
        rows = observed[:, k]
        if rows.sum() >= MIN_OUTCOMES:
            latest = fit_temperature(curve[rows, k], survived[rows, k], before[rows])
        found.append(latest)
        before = before * at_temperature(curve[:, k], latest)
    return tuple(found)


def scaled(curve: np.ndarray, temperatures: Sequence[float]) -> np.ndarray:
    """Returns the confidence with a separate temperature for every position, (N, G). curve: as for ``fit_temperatures``."""
    return np.stack([at_temperature(curve[:, k], t) for k, t in enumerate(temperatures)], axis=1)


def temperature_advice(table: StepTable, scores: Scores, resampler: Resampler) -> TemperatureAdvice | None:
    """Returns fitted temperatures and their effect; None if one half of the units has fewer than ``MIN_FITTED_POSITIONS``
    scored positions with ``tempered``."""
    if not table.tempered.shape[2]:
        return None
    unit = np.full(len(table), UNSEEN)
    unit[scores.row] = scores.unit
    curve = curves(table.confidence, table.tempered)
    known = ~np.isnan(curve).any(2)
    fit, judge = (known & ((unit >= 0) & (unit % 2 == half))[:, None] for half in (0, 1))
    if min((fit & table.scored).sum(), (judge & table.scored).sum()) < MIN_FITTED_POSITIONS:
        return None
    at = np.arange(known.shape[1])
    survived = at < table.matched[:, None]
    # After a rejection, no token is accepted. Positions beyond the verified nodes are left out, since their outcome is unknown.
    observed = survived | (table.partly[:, None] & (at <= table.nodes[:, :1]))
    temperatures = fit_temperatures(curve, survived, fit & observed)
    other = scaled(curve, temperatures)
    row, at = np.nonzero(judge & observed)
    errors = [
        resampled_error(
            Scores(np.cumprod(c, axis=1)[row, at], survived[row, at].astype(float), at + 1, row, unit[row]), resampler
        )
        for c in (table.confidence, other)
    ]
    before, after = errors
    judged = judge.any(1)
    hits = [
        _hit_rate(c[judged & table.redrafted], table.take(judged & table.redrafted)) for c in (table.confidence, other)
    ]
    chosen = judged & (table.selected > 0)
    picks = [_likeliest(c[chosen], table.selected[chosen]) for c in (table.confidence, other)]
    return TemperatureAdvice(
        temperatures=temperatures,
        error_before=before.value,
        error_after=after.value,
        improvement=resampler.figure(*before.minus(after)),
        hits_before=hits[0],
        hits_after=hits[1],
        changed=float((picks[0] != picks[1]).any(1).mean()) if chosen.any() else None,
    )


def _likeliest(confidence: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Returns a mask, (N, G), of the ``count``, (N,), likeliest prefixes of each step; equally likely ones: the shorter first."""
    posterior, _ = boundary_posteriors(confidence)
    place = np.argsort(np.argsort(-posterior, axis=1, kind="stable"), axis=1)
    return (place < count[:, None]) & (posterior >= 0)


def _hit_rate(confidence: np.ndarray, steps: StepTable) -> float | None:
    """Returns the share of steps whose true boundary is among the K likeliest prefixes; K: number that the step selected."""
    return float((ranks(confidence, steps.boundary) < steps.selected).mean()) if len(steps) else None


# A trained confidence head.


@dataclass(frozen=True, slots=True)
class HeadErrors:
    """ECE of the softmax and of the trained confidence head over the same positions; ``difference``: head − softmax."""

    positions: int
    softmax: Estimate
    head: Estimate
    difference: Estimate


def head_errors(table: StepTable, unit: np.ndarray, resampler: Resampler) -> HeadErrors | None:
    """Returns the ECE of softmax and head over the steps with a trained confidence head; None without such steps.

    unit: (N,) resampling unit of each step.
    """
    known = ~np.isnan(table.head).all(1)
    if not known.any():
        return None
    own = table.take(known)
    by_softmax = score(own, unit[known])
    by_head = score(replace(own, confidence=widened(own.head, own.confidence.shape[1], np.nan)), unit[known])
    softmax, head = (resampled_error(scores, resampler) for scores in (by_softmax, by_head))
    figures = (resampler.figure(*found) for found in (softmax, head, head.minus(softmax)))
    return HeadErrors(len(by_softmax), *figures)
