"""Other confidences for the same drafts: the softmax at another temperature, and a trained confidence head.

Each is scored on the same positions of the same steps as the softmax, so differences use a paired bootstrap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from d2sd.calibration.boundaries import ranks
from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.calibration.scores import Scores, resampled_error, score
from d2sd.calibration.steps import StepTable, widened
from d2sd.trace.events import TEMPERATURES

# Another temperature: would it calibrate the softmax better, and would it change the selected prefixes?
#
# Steps may hold the probability of every drafted token at several temperatures. Between these, its log-odds are interpolated in
# the logarithm of the temperature; on logits of the bundled drafters the error is at most 0.025.

EDGE = 1e-6
KNOWN = (*(t for t in TEMPERATURES if t < 1), 1.0, *(t for t in TEMPERATURES if t > 1))
AS_IT_IS = KNOWN.index(1.0)
TRIED, ROUNDS = 13, 3  # temperatures side by side, each time closer about the best: to 1% in the end
MIN_FITTED_POSITIONS = 50


@dataclass(frozen=True, slots=True)
class TemperatureAdvice:
    """A temperature fitted on every other unit and evaluated on the rest.

    error_before, error_after: ECE of the evaluation half.
    improvement: their difference, with its interval.
    hits_before, hits_after: share of steps whose true boundary is among the K likeliest; None without such a step.
    """

    temperature: float
    error_before: float
    error_after: float
    improvement: Estimate
    hits_before: float | None
    hits_after: float | None


def curves(confidence: np.ndarray, tempered: np.ndarray) -> np.ndarray:
    """Returns confidence by temperature, (…, len(KNOWN)), from that at 1 (…) and those at ``TEMPERATURES``."""
    return np.insert(tempered, AS_IT_IS, confidence, axis=-1)


def at_temperature(curve: np.ndarray, temperature: float) -> np.ndarray:
    """Returns confidence (…) at a temperature within ``KNOWN``, from ``curves``."""
    place = float(np.interp(np.log(temperature), np.log(KNOWN), np.arange(len(KNOWN))))
    low = min(int(place), len(KNOWN) - 2)
    before, after = (_log_odds(curve[..., n]) for n in (low, low + 1))
    return 1 / (1 + np.exp(-(before + (place - low) * (after - before))))


def _log_odds(confidence: np.ndarray) -> np.ndarray:
    clipped = np.clip(confidence.astype(float), EDGE, 1 - EDGE)
    return np.log(clipped / (1 - clipped))


def fit_temperature(curve: np.ndarray, accepted: np.ndarray) -> float:
    """Returns the temperature within ``KNOWN`` with the largest likelihood of the outcomes ``accepted`` (M,).

    curve: result of ``curves``, (M, len(KNOWN)).
    """
    low, high, best = KNOWN[0], KNOWN[-1], 1.0
    for _ in range(ROUNDS):
        tried = np.geomspace(low, high, TRIED)
        fits = [float(likelihoods(curve, accepted, t).sum()) for t in tried]
        at = int(np.argmax(fits))
        low, high, best = tried[max(0, at - 1)], tried[min(TRIED - 1, at + 1)], tried[at]
    return float(best)


def likelihoods(curve: np.ndarray, accepted: np.ndarray, temperature: float) -> np.ndarray:
    """Returns the log-likelihoods (M,) of the outcomes ``accepted`` (M,) at a temperature within ``KNOWN``; see
    ``fit_temperature``."""
    sure = at_temperature(curve, temperature)
    found: np.ndarray = np.log(np.where(accepted > 0, sure, 1 - sure))
    return found


def temperature_advice(table: StepTable, scores: Scores, resampler: Resampler) -> TemperatureAdvice | None:
    """Returns the effect of a fitted temperature; None if either half has too few scored positions with tempered
    probabilities."""
    if not table.tempered.shape[2]:
        return None
    curve = curves(scores.confidence, table.tempered[scores.row, scores.position - 1])
    known = ~np.isnan(curve).any(1)
    fit, judge = known & (scores.unit % 2 == 0), known & (scores.unit % 2 == 1)
    if min(fit.sum(), judge.sum()) < MIN_FITTED_POSITIONS:
        return None
    temperature = fit_temperature(curve[fit], scores.accepted[fit])
    half = scores.take(judge)
    before = resampled_error(half, resampler)
    after = resampled_error(replace(half, confidence=at_temperature(curve[judge], temperature)), resampler)
    judged = np.zeros(len(table), bool)
    judged[half.row] = True
    steps = table.take(judged & table.redrafted)
    other = at_temperature(curves(steps.confidence, steps.tempered), temperature)
    return TemperatureAdvice(
        temperature=temperature,
        error_before=before.value,
        error_after=after.value,
        improvement=resampler.figure(*before.minus(after)),
        hits_before=_hit_rate(steps.confidence, steps),
        hits_after=_hit_rate(other, steps),
    )


def _hit_rate(confidence: np.ndarray, steps: StepTable) -> float | None:
    """Returns the share of steps whose true boundary is among the K likeliest, with K as selected."""
    return float((ranks(confidence, steps.boundary) < steps.selected).mean()) if len(steps) else None


# A trained confidence head.


@dataclass(frozen=True, slots=True)
class HeadErrors:
    """ECE of the softmax and of the trained confidence head over the same positions, and head − softmax."""

    positions: int
    softmax: Estimate
    head: Estimate
    difference: Estimate


def head_errors(table: StepTable, unit: np.ndarray, resampler: Resampler) -> HeadErrors | None:
    """Returns the ECE of both over the steps with a confidence head; None if no drafter has one.

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
