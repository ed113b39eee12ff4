"""Other confidences for the same drafts: the softmax at another temperature, and a trained confidence head.

Each is scored on the same positions and boundaries of the same steps as the softmax, so differences use a paired bootstrap.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from d2sd.calibration.boundaries import ranks
from d2sd.calibration.resampling import Estimate, Resampled, Resampler
from d2sd.calibration.scores import Bin, Scores, reliability, resampled_error, score, uniform_edges
from d2sd.calibration.steps import StepTable, units, widened
from d2sd.trace.events import TEMPERATURES
from d2sd.tree.boundary import boundary_posteriors

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
    steps: number of evaluated steps that selected prefixes.
    rows: rows of the table among them whose set of K prefixes would change.
    moved_steps: share of these steps.
    moved: share of all selected prefixes that would change.
    hits_before, hits_after: share of steps whose true boundary is among the K likeliest; None without such a step.
    """

    temperature: float
    fitted_positions: int
    judged_positions: int
    error_before: float
    error_after: float
    improvement: Estimate
    steps: int
    rows: tuple[int, ...]
    moved_steps: float | None
    moved: float | None
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
    half, edges = scores.take(judge), uniform_edges()
    before = resampled_error(half, half.confidence, edges, resampler)
    after = resampled_error(half, at_temperature(curve[judge], temperature), edges, resampler)
    judged = np.zeros(len(table), bool)
    judged[half.row] = True
    rows = np.flatnonzero(judged & (table.selected > 0))
    steps = table.take(rows)
    other = at_temperature(curves(steps.confidence, steps.tempered), temperature)
    moved, partly = _replaced(steps, other), steps.partly
    return TemperatureAdvice(
        temperature=temperature,
        fitted_positions=int(fit.sum()),
        judged_positions=int(judge.sum()),
        error_before=before.value,
        error_after=after.value,
        improvement=resampler.figure(*before.minus(after)),
        steps=len(rows),
        rows=tuple(rows[moved > 0].tolist()),
        moved_steps=float((moved > 0).mean()) if len(rows) else None,
        moved=float(moved.sum() / steps.selected.sum()) if len(rows) else None,
        hits_before=_hits(steps.confidence, steps)[partly].mean().item() if partly.any() else None,
        hits_after=_hits(other, steps)[partly].mean().item() if partly.any() else None,
    )


def _hits(confidence: np.ndarray, steps: StepTable) -> np.ndarray:
    """Returns whether the true boundary is among the K likeliest, with K as selected, (N,) bool."""
    return ranks(confidence, steps.boundary) < steps.selected


def _replaced(steps: StepTable, other: np.ndarray) -> np.ndarray:
    """Returns how many of its K likeliest prefixes each step would replace with other confidences, (N,)."""

    def likeliest(confidence: np.ndarray) -> np.ndarray:
        order = np.argsort(-boundary_posteriors(confidence)[0], axis=1, kind="stable")
        place = np.empty_like(order)
        np.put_along_axis(place, order, np.arange(order.shape[1])[None, :], axis=1)
        return place < steps.selected[:, None]

    return (likeliest(steps.confidence) & ~likeliest(other)).sum(1)


# The confidence head: which of the two predicts acceptance better?

TOP = 4  # prefixes: the usual K


@dataclass(frozen=True, slots=True)
class Contest:
    """One figure of both, and head − softmax. better: sign of a difference in favour of the head."""

    name: str
    softmax: Estimate
    head: Estimate
    difference: Estimate
    better: int


@dataclass(frozen=True, slots=True)
class TrainedReport:
    """Numbers of steps and scored positions of drafts with a confidence head, the figures (``NAMES``), both reliability
    diagrams, and the resampling unit."""

    steps: int
    positions: int
    unit: str
    contests: tuple[Contest, ...]
    softmax: tuple[Bin, ...]
    head: tuple[Bin, ...]

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON-ready data."""
        return asdict(self)


NAMES = {
    "error": "calibration error (ECE)",
    "brier": "Brier score",
    "auroc": "AUROC of accepted against rejected",
    "rank": "mean rank of the true boundary",
    "first": "true boundary is the likeliest",
    "within": f"true boundary among the {TOP} likeliest",
}


def trained_tables(table: StepTable) -> tuple[StepTable, StepTable] | None:
    """Returns the steps with a confidence head twice: with softmax confidences and with those of the head; None if there are
    none."""
    known = ~np.isnan(table.head).all(1)
    if not known.any():
        return None
    table = table.take(known)
    return table, replace(table, confidence=widened(table.head, table.confidence.shape[1], np.nan))


def compare_trained(table: StepTable) -> TrainedReport | None:
    """Returns every figure of both over the steps with a confidence head; None if no drafter has one."""
    tables = trained_tables(table)
    if tables is None:
        return None
    unit, name = units(tables[0])
    resampler = Resampler(int(unit.max(initial=-1)) + 1)
    softmax, head = (_figures(table, unit, resampler) for table in tables)
    contests = []
    for key, better in (("error", -1), ("brier", -1), ("auroc", 1), ("rank", -1), ("first", 1), ("within", 1)):
        both = resampler.figure(*softmax[key]), resampler.figure(*head[key])
        contests.append(Contest(key, *both, resampler.figure(*head[key].minus(softmax[key])), better))
    scores = [score(table, unit) for table in tables]
    bins = (tuple(reliability(s, uniform_edges())) for s in scores)
    return TrainedReport(len(tables[0]), len(scores[0]), name, tuple(contests), *bins)


def _figures(table: StepTable, unit: np.ndarray, resampler: Resampler) -> dict[str, Resampled]:
    scores = score(table, unit)
    partly, at = table.take(table.partly), unit[table.partly]
    rank = ranks(partly.confidence, partly.boundary) + 1
    means = {
        "brier": ((scores.confidence - scores.accepted) ** 2, scores.unit),
        "rank": (rank, at),
        "first": (rank <= 1, at),
        "within": (rank <= TOP, at),
    }
    return {
        "error": resampled_error(scores, scores.confidence, uniform_edges(), resampler),
        "auroc": auroc(scores, resampler),
        **{
            name: resampler.resampled(values.astype(float), np.ones(len(values)), of)
            for name, (values, of) in means.items()
        },
    }


def auroc(scores: Scores, resampler: Resampler) -> Resampled:
    """Returns the probability that an accepted position has a higher confidence than a rejected one, ties counting half."""
    values, place = np.unique(scores.confidence, return_inverse=True)

    def share(weights: np.ndarray) -> float:
        right, wrong = (
            np.bincount(place, weights * side, len(values)) for side in (scores.accepted, 1 - scores.accepted)
        )
        pairs = right.sum() * wrong.sum()
        return float((right * (np.cumsum(wrong) - wrong / 2)).sum() / pairs) if pairs else float("nan")

    resamples = np.array([share(weights[scores.unit]) for weights in resampler.weights])
    return Resampled(share(np.ones(len(scores))), resamples)


def read_trained(report: TrainedReport) -> dict[str, str]:
    """Returns a sentence for each figure by name; a difference whose interval contains 0 is not called one."""
    sentences = {}
    for c in report.contests:
        if c.softmax.value is None or c.head.value is None:
            continue
        low, high = c.difference.low, c.difference.high
        winner = "head" if (c.difference.value or 0) * c.better > 0 else "softmax"
        interval = "" if low is None else f", difference {c.difference.value:+.3f} ({low:+.3f} to {high:+.3f})"
        verdict = f"the {winner} is better" if c.difference.excludes_zero else "no clear difference"
        sentences[c.name] = (
            f"{NAMES[c.name]}: softmax {c.softmax.value:.3f}, head {c.head.value:.3f}{interval}: {verdict}"
        )
    return sentences
