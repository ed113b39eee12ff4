"""Reliability of a drafter's confidence: bins of a reliability diagram, ECE, Brier score, and figures by prompt group.

Only positions up to the first rejection and within the committed text are scored, since the target's decision about later tokens
is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from d2sd.calibration.resampling import MIN_UNITS, Estimate, Resampled, Resampler, wilson
from d2sd.calibration.steps import Scores, StepTable

BINS = 10
EDGES = np.linspace(0, 1, BINS + 1)


@dataclass(frozen=True, slots=True)
class Bin:
    """Scored positions of about the same confidence.

    left, right: bounds of the confidence.
    count: number of positions.
    confidence, accepted: mean confidence, and share of accepted tokens.
    low, high: 95% interval of the accepted share (Wilson).
    """

    left: float
    right: float
    count: int
    confidence: float
    accepted: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PositionAcceptance:
    """Acceptance of the first draft at a position.

    position: the position; 1 is the first drafted token.
    count: number of steps that reached the position. The other fields are about these steps.
    confidence: mean confidence; None if one of the steps has no confidence.
    accepted: share of accepted tokens.
    low, high: 95% interval of the accepted share (Wilson).
    """

    position: int
    count: int
    confidence: float | None
    accepted: float
    low: float
    high: float


def bin_numbers(confidence: np.ndarray) -> np.ndarray:
    """Returns the number of the bin of each confidence, and −1 for NaN. The last bin includes its right edge."""
    bins = np.clip(np.searchsorted(EDGES, confidence, side="right") - 1, 0, BINS - 1)
    return np.where(np.isnan(confidence), -1, bins)


def reliability(scores: Scores) -> list[Bin]:
    """Returns all bins of a reliability diagram, in ascending order. The confidence of an empty bin is the bin's centre."""
    edges = EDGES.round(9).tolist()
    return [
        Bin(left, end, n, c / n, a / n, *wilson(a / n, n)) if n else Bin(left, end, 0, (left + end) / 2, 0.0, 0.0, 1.0)
        for (left, end), (n, c, a) in zip(
            pairwise(edges), _sums(bin_numbers(scores.confidence), BINS, scores), strict=True
        )
    ]


def acceptance_by_position(scores: Scores) -> list[PositionAcceptance]:
    """Returns the acceptance at every position that was reached; position 1 is the first drafted token."""
    sums = _sums(scores.position, int(scores.position.max(initial=0)) + 1, scores)
    return [
        PositionAcceptance(k, n, None if np.isnan(c) else c / n, a / n, *wilson(a / n, n))
        for k, (n, c, a) in enumerate(sums)
        if n
    ]


def _sums(group: np.ndarray, count: int, scores: Scores) -> list[tuple[int, float, float]]:
    """Returns (number of scores, Σ confidence, Σ accepted) of each of ``count`` groups. group: number of the group of each score."""
    weights = (None, scores.confidence, scores.accepted)
    columns = (np.bincount(group, weights=w, minlength=count).tolist() for w in weights)
    return list(zip(*columns, strict=True))


def expected_calibration_error(confidence: np.ndarray, accepted: np.ndarray) -> float:
    """Returns the ECE: Σ over bins of (share of all positions in the bin) · |accepted share − mean confidence|."""
    if not len(confidence):
        return float("nan")
    gaps = np.bincount(bin_numbers(confidence), weights=accepted - confidence, minlength=BINS)
    return float(np.abs(gaps).sum() / len(confidence))


def resampled_error(scores: Scores, unit: np.ndarray, resampler: Resampler) -> Resampled:
    """Returns the ECE with its resamples. unit: resampling unit of each step, (N,)."""
    cell = unit[scores.row] * BINS + bin_numbers(scores.confidence)
    gaps = np.bincount(cell, weights=scores.accepted - scores.confidence, minlength=resampler.count * BINS)
    counts = np.bincount(unit[scores.row], minlength=resampler.count)
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = np.abs(resampler.weights @ gaps.reshape(-1, BINS)).sum(1) / (resampler.weights @ counts)
    return Resampled(expected_calibration_error(scores.confidence, scores.accepted), errors)


def chance_error(confidence: np.ndarray) -> float:
    """Returns the expected ECE of a perfectly calibrated drafter with these confidences.

    For such a drafter, the sum of (accepted − confidence) over a bin is nearly normally distributed with mean 0 and variance
    Σ c(1−c), and its expected absolute value is σ·√(2/π).
    """
    if not len(confidence):
        return float("nan")
    spread = np.bincount(bin_numbers(confidence), weights=confidence * (1 - confidence), minlength=BINS)
    return float(np.sqrt(2 / np.pi * spread).sum() / len(confidence))


@dataclass(frozen=True, slots=True)
class ConfidenceFigures:
    """Figures of a drafter's confidence over its scored positions.

    positions: number of scored positions.
    confidence, accepted: mean confidence, and share of accepted tokens; None without positions.
    gap: accepted − confidence; negative if the drafter is over-confident.
    ece: expected calibration error, the mean |accepted − confidence| over the bins of ``uniform``, weighted by their counts.
    chance: expected ECE of a perfectly calibrated drafter.
    brier: Brier score, the mean (confidence − accepted)² over the scored positions, where ``accepted`` is 0 or 1.
    brier_chance: expected Brier score of a perfectly calibrated drafter with these confidences c, the mean c(1−c).
    uniform: bins of the reliability diagram.
    """

    positions: int
    confidence: float | None
    accepted: float | None
    gap: Estimate
    ece: Estimate
    chance: float | None
    brier: Estimate
    brier_chance: float | None
    uniform: tuple[Bin, ...]


def confidence_figures(scores: Scores, unit: np.ndarray, resampler: Resampler) -> dict[str, Any]:
    """Returns the fields of ``ConfidenceFigures``. unit: resampling unit of each step, (N,)."""
    any_scores, c = len(scores) > 0, scores.confidence
    return {
        "positions": len(scores),
        "confidence": float(c.mean()) if any_scores else None,
        "accepted": float(scores.accepted.mean()) if any_scores else None,
        "gap": resampler.mean(scores.accepted - c, unit[scores.row]),
        "ece": resampler.figure(*resampled_error(scores, unit, resampler)),
        "chance": chance_error(c) if any_scores else None,
        "brier": resampler.mean((c - scores.accepted) ** 2, unit[scores.row]),
        "brier_chance": float((c * (1 - c)).mean()) if any_scores else None,
        "uniform": tuple(reliability(scores)),
    }


# By prompt group.


@dataclass(frozen=True, slots=True)
class Group:
    """Figures of a prompt group.

    name: name of the group.
    positions, confidence, accepted, gap, ece, brier: as in ``ConfidenceFigures``.
    tokens: α.
    repaired: share of the re-drafted steps in which re-drafts added tokens at the true boundary.
    """

    name: str
    positions: int
    confidence: float | None
    accepted: float | None
    gap: Estimate
    ece: float | None
    brier: float | None
    tokens: Estimate
    repaired: Estimate


def by_domain(
    table: StepTable, scores: Scores, unit: np.ndarray, domains: Sequence[str], resampler: Resampler
) -> tuple[Group, ...]:
    """Returns the figures of every prompt group; empty if there is only one group.

    domains: prompt group of each run, by the run's number in ``table``.
    """
    names = sorted(set(domains))
    if len(names) < 2:
        return ()
    group_of_step = np.array(domains, object)[table.run]
    groups = []
    for name in names:
        steps = group_of_step == name
        redrafted = steps & table.redrafted
        group_scores = scores.take(steps[scores.row])
        figures = confidence_figures(group_scores, unit, resampler)
        gap = figures["gap"]
        groups.append(
            Group(
                name,
                positions=figures["positions"],
                confidence=figures["confidence"],
                accepted=figures["accepted"],
                # no interval with few units, since their resamples hardly differ
                gap=gap if len(np.unique(unit[group_scores.row])) >= MIN_UNITS else Estimate(gap.value),
                ece=figures["ece"].value,
                brier=figures["brier"].value,
                tokens=resampler.mean(table.committed[steps], unit[steps]),
                repaired=resampler.share(table.repaired[redrafted], unit[redrafted]),
            )
        )
    return tuple(groups)
