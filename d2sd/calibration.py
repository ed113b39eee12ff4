"""Does a drafter's confidence deserve trust? Reliability, ECE, Brier score, boundary hits, temperature advice.

Only positions up to the first rejection are scored: whether a later token would have been accepted was never
observed. Intervals are 95% percentile bootstraps that draw whole prompts again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from d2sd.boundary import boundary_posterior, select_prefixes
from d2sd.events import StepDone

RESAMPLES = 1000
EDGE = 1e-6


@dataclass(frozen=True, slots=True)
class Scores:
    """Scored positions of one or more prompts: confidence in [0, 1], accepted 0/1, number of the prompt; all (N,)."""

    confidence: np.ndarray
    accepted: np.ndarray
    prompt: np.ndarray


@dataclass(frozen=True, slots=True)
class Bin:
    """One bar of a reliability diagram; ``low``/``high`` bound the accepted share (Wilson, 95%)."""

    left: float
    right: float
    count: int
    confidence: float
    accepted: float
    low: float
    high: float


def scored_positions(step: StepDone) -> list[tuple[float, bool]]:
    """(c_k, accepted) of the first draft up to and including its first rejection."""
    if step.first_draft is None or step.actual_boundary is None:
        return []
    return [
        (c, k < step.actual_boundary) for k, c in enumerate(step.first_draft.confidence[: step.actual_boundary + 1])
    ]


def collect(runs: Sequence[Sequence[StepDone]]) -> Scores:
    """Scored positions of runs, one run a prompt."""
    rows = [(c, a, number) for number, steps in enumerate(runs) for s in steps for c, a in scored_positions(s)]
    columns = np.array(rows, dtype=float).reshape(-1, 3).T
    return Scores(columns[0], columns[1], columns[2].astype(int))


def uniform_edges(bins: int = 10) -> np.ndarray:
    """Bin edges of equal width."""
    return np.linspace(0, 1, bins + 1)


def equal_mass_edges(confidence: np.ndarray, bins: int = 10) -> np.ndarray:
    """Bin edges with about equally many positions between them (adaptive ECE)."""
    inner = np.quantile(confidence, np.linspace(0, 1, bins + 1)[1:-1]) if len(confidence) else []
    return np.unique(np.concatenate([[0.0], inner, [1.0]]))


def _places(confidence: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return np.clip(np.searchsorted(edges, confidence, side="right") - 1, 0, len(edges) - 2)


def reliability(scores: Scores, edges: np.ndarray) -> list[Bin]:
    """The bins of a reliability diagram; empty ones are left out."""
    places, out = _places(scores.confidence, edges), []
    for b in range(len(edges) - 1):
        here = places == b
        if here.any():
            share, count = float(scores.accepted[here].mean()), int(here.sum())
            low, high = wilson(share, count)
            mean = float(scores.confidence[here].mean())
            out.append(Bin(float(edges[b]), float(edges[b + 1]), count, mean, share, low, high))
    return out


def wilson(share: float, count: int, z: float = 1.96) -> tuple[float, float]:
    """95% Wilson interval of a share."""
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return float(max(0, centre - half)), float(min(1, centre + half))


def expected_calibration_error(confidence: np.ndarray, accepted: np.ndarray, edges: np.ndarray) -> float:
    """ECE: Σ over bins of (share of positions in the bin) · |accepted share − mean confidence|."""
    if not len(confidence):
        return float("nan")
    gaps = np.bincount(_places(confidence, edges), weights=accepted - confidence, minlength=len(edges) - 1)
    return float(np.abs(gaps).sum() / len(confidence))


def brier_score(confidence: np.ndarray, accepted: np.ndarray) -> float:
    """Mean squared difference between confidence and outcome."""
    return float(np.mean((confidence - accepted) ** 2)) if len(confidence) else float("nan")


def interval(scores: Scores, figure: Callable[[np.ndarray, np.ndarray], float], seed: int = 0) -> tuple[float, float]:
    """95% bootstrap interval by prompt of a figure of (confidence, accepted)."""
    rng = np.random.default_rng(seed)
    groups = [np.flatnonzero(scores.prompt == p) for p in np.unique(scores.prompt)]
    if not groups:
        return float("nan"), float("nan")
    values = []
    for _ in range(RESAMPLES):
        index = np.concatenate([groups[i] for i in rng.integers(0, len(groups), len(groups))])
        values.append(figure(scores.confidence[index], scores.accepted[index]))
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def acceptance_by_position(steps: Sequence[StepDone]) -> list[tuple[int, int, float]]:
    """(position k, times reached, share accepted) of the first draft; position 1 is the first drafted token."""
    reached: dict[int, list[bool]] = {}
    for step in steps:
        for k, (_, accepted) in enumerate(scored_positions(step), 1):
            reached.setdefault(k, []).append(accepted)
    return [(k, len(v), sum(v) / len(v)) for k, v in sorted(reached.items())]


def boundary_ranks(steps: Sequence[StepDone]) -> list[int]:
    """Rank of the true boundary among all r(i), 0 = likeliest; steps whose first draft was wholly accepted are left out."""
    ranks = []
    for step in steps:
        drafted = len(step.boundary_posterior)
        if step.actual_boundary is not None and step.actual_boundary < drafted:
            ranks.append(select_prefixes(step.boundary_posterior, drafted).index(step.actual_boundary))
    return ranks


def tempered(confidence: np.ndarray, temperature: float) -> np.ndarray:
    """Confidence with its log-odds divided by a temperature: > 1 makes it less sure."""
    clipped = np.clip(confidence, EDGE, 1 - EDGE)
    return 1 / (1 + np.exp(-np.log(clipped / (1 - clipped)) / temperature))


def fit_temperature(confidence: np.ndarray, accepted: np.ndarray) -> float:
    """The temperature in [0.2, 5] that gives the observed outcomes the largest likelihood."""
    grid = np.exp(np.linspace(np.log(0.2), np.log(5), 200))
    likelihood = []
    for temperature in grid:
        p = np.clip(tempered(confidence, temperature), EDGE, 1 - EDGE)
        likelihood.append(np.mean(np.log(np.where(accepted > 0.5, p, 1 - p))))
    return float(grid[int(np.argmax(likelihood))])


@dataclass(frozen=True, slots=True)
class TemperatureAdvice:
    """Fitted on the first half of the prompts, judged on the second; ``moved`` = share of steps whose set of selected
    prefixes would change there."""

    temperature: float
    error_before: float
    error_after: float
    moved: float


def temperature_advice(runs: Sequence[Sequence[StepDone]]) -> TemperatureAdvice | None:
    """What a temperature would mend; None where there are fewer than four prompts."""
    if len(runs) < 4:
        return None
    fit, judge = collect(runs[::2]), collect(runs[1::2])
    if not len(fit.confidence) or not len(judge.confidence):
        return None
    temperature = fit_temperature(fit.confidence, fit.accepted)
    edges = uniform_edges()
    before = expected_calibration_error(judge.confidence, judge.accepted, edges)
    after = expected_calibration_error(tempered(judge.confidence, temperature), judge.accepted, edges)
    steps = [s for run in runs[1::2] for s in run if s.first_draft is not None and s.selected_prefixes]
    moved = 0
    for step in steps:
        assert step.first_draft is not None
        confidence = tempered(np.array(step.first_draft.confidence), temperature)
        posterior, _ = boundary_posterior(confidence.tolist())
        moved += set(select_prefixes(posterior, len(step.selected_prefixes))) != set(step.selected_prefixes)
    return TemperatureAdvice(temperature, before, after, moved / len(steps) if steps else 0.0)
