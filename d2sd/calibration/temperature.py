"""Would another temperature make the confidence more honest, and would it change what is re-drafted?

A recorded step holds the probability of the drafted token only, so the temperature divides its log-odds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from d2sd.calibration.outcomes import ranks
from d2sd.calibration.resampling import Figure, Resampler
from d2sd.calibration.scores import Scores, expected_calibration_error, resampled_error, uniform_edges
from d2sd.calibration.steps import StepTable
from d2sd.tree.boundary import boundary_posteriors

EDGE = 1e-6
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.2, 5.0
HALVINGS = 40
MIN_FITTED_POSITIONS = 50


@dataclass(frozen=True, slots=True)
class TemperatureAdvice:
    """A temperature fitted on every other unit and judged on the rest.

    error_before, error_after: ECE of the judged half.
    improvement: their difference, with its interval.
    steps: judged steps that selected prefixes.
    rows: those of them, as rows of the table, whose set of K prefixes would change.
    moved_steps: their share.
    moved: share of all single prefix choices that would change.
    hits_before, hits_after: how often the true boundary is among the K likeliest; None without such a step.
    """

    temperature: float
    fitted_positions: int
    judged_positions: int
    error_before: float
    error_after: float
    improvement: Figure
    steps: int
    rows: tuple[int, ...]
    moved_steps: float | None
    moved: float | None
    hits_before: float | None
    hits_after: float | None


def tempered(confidence: np.ndarray, temperature: float) -> np.ndarray:
    """Confidence with its log-odds divided by a temperature: > 1 makes it less sure."""
    return 1 / (1 + np.exp(-_log_odds(confidence) / temperature))


def _log_odds(confidence: np.ndarray) -> np.ndarray:
    clipped = np.clip(confidence, EDGE, 1 - EDGE)
    return np.log(clipped / (1 - clipped))


def fit_temperature(confidence: np.ndarray, accepted: np.ndarray) -> float:
    """The temperature in [0.2, 5] that gives the observed outcomes the largest likelihood.

    The log-likelihood is concave in 1/temperature: halve the interval at the sign of its slope.
    """
    odds = _log_odds(confidence)
    low, high = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if float(np.sum((accepted - 1 / (1 + np.exp(-odds * middle))) * odds)) > 0:
            low = middle
        else:
            high = middle
    return 2 / (low + high)


def temperature_advice(table: StepTable, scores: Scores, resampler: Resampler) -> TemperatureAdvice | None:
    """What a temperature would mend; None where one half has too few scored positions to fit or judge on."""
    fit, judge = scores.unit % 2 == 0, scores.unit % 2 == 1
    if min(fit.sum(), judge.sum()) < MIN_FITTED_POSITIONS:
        return None
    temperature = fit_temperature(scores.confidence[fit], scores.accepted[fit])
    half = Scores(*(getattr(scores, name)[judge] for name in scores.__dataclass_fields__))
    after, edges = tempered(half.confidence, temperature), uniform_edges()
    errors = [expected_calibration_error(c, half.accepted, edges) for c in (half.confidence, after)]
    drawn = [resampled_error(half, c, edges, resampler) for c in (half.confidence, after)]
    judged = np.zeros(len(table), bool)
    judged[half.row] = True
    rows = np.flatnonzero(judged & (table.selected > 0))
    steps = table.take(rows)
    moved = _replaced(steps, temperature)
    partly = steps.partly
    return TemperatureAdvice(
        temperature=temperature,
        fitted_positions=int(fit.sum()),
        judged_positions=int(judge.sum()),
        error_before=errors[0],
        error_after=errors[1],
        improvement=resampler.figure(errors[0] - errors[1], drawn[0] - drawn[1]),
        steps=len(rows),
        rows=tuple(rows[moved > 0].tolist()),
        moved_steps=float((moved > 0).mean()) if len(rows) else None,
        moved=float(moved.sum() / steps.selected.sum()) if len(rows) else None,
        hits_before=_hits(steps.confidence, steps)[partly].mean().item() if partly.any() else None,
        hits_after=_hits(tempered(steps.confidence, temperature), steps)[partly].mean().item()
        if partly.any()
        else None,
    )


def _hits(confidence: np.ndarray, steps: StepTable) -> np.ndarray:
    """Whether the true boundary is among the K likeliest, K as many as were selected, (N,) bool."""
    return ranks(confidence, steps.boundary) < steps.selected


def _replaced(steps: StepTable, temperature: float) -> np.ndarray:
    """How many of its K likeliest prefixes each step would replace, (N,)."""

    def likeliest(confidence: np.ndarray) -> np.ndarray:
        order = np.argsort(-boundary_posteriors(confidence)[0], axis=1, kind="stable")
        place = np.empty_like(order)
        np.put_along_axis(place, order, np.arange(order.shape[1])[None, :], axis=1)
        return place < steps.selected[:, None]

    return (likeliest(steps.confidence) & ~likeliest(tempered(steps.confidence, temperature))).sum(1)
