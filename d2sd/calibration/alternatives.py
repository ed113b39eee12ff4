"""A trained confidence head against the drafter's probabilities: which of the two predicts acceptance better.

Both are scored on the same positions and boundaries of the same steps, so their difference uses a paired bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from d2sd.calibration.boundaries import ranks
from d2sd.calibration.resampling import RESAMPLES, Estimate, Resampler
from d2sd.calibration.scores import (
    Bin,
    Scores,
    expected_calibration_error,
    reliability,
    resampled_error,
    score,
    uniform_edges,
)
from d2sd.calibration.steps import StepTable, units, widened
from d2sd.trace.events import StepDone

TOP = 4  # prefixes: the usual K
UNITS_AT_ONCE = 256  # a table of all pairs of ten thousand prompts would take 800 MB


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


def head_confidence(steps: Sequence[StepDone]) -> np.ndarray:
    """Returns the confidence head's value for each drafted token, (N, G), G being the longest such draft; NaN elsewhere."""
    said = [s.trained[0] if s.trained else () for s in steps]
    lengths = np.array([len(values) for values in said], dtype=int)
    head = np.full((len(steps), int(lengths.max(initial=0))), np.nan)
    head[np.arange(head.shape[1]) < lengths[:, None]] = np.fromiter(chain.from_iterable(said), float)
    return head


def trained_tables(table: StepTable, head: np.ndarray) -> tuple[StepTable, StepTable] | None:
    """Returns the steps with a confidence head twice: with softmax confidences and with those of the head; None if there are
    none.

    head: result of ``head_confidence``."""
    spoke = ~np.isnan(head).all(1)
    if not spoke.any():
        return None
    table = table.take(spoke)
    return table, replace(table, confidence=widened(head[spoke], table.confidence.shape[1], np.nan))


def compare_trained(table: StepTable, head: np.ndarray) -> TrainedReport | None:
    """Returns every figure of both over the steps with a confidence head; None if no drafter has one.

    head: result of ``head_confidence``."""
    tables = trained_tables(table, head)
    if tables is None:
        return None
    unit, name = units(tables[0])
    resampler = Resampler(int(unit.max(initial=-1)) + 1)
    sides = [_figures(table, unit, resampler) for table in tables]
    contests = []
    for key, better in (("error", -1), ("brier", -1), ("auroc", 1), ("rank", -1), ("first", 1), ("within", 1)):
        (a, drawn_a), (b, drawn_b) = (side[key] for side in sides)
        ours, heads = (
            Estimate(None) if np.isnan(v) else resampler.figure(v, drawn) for v, drawn in ((a, drawn_a), (b, drawn_b))
        )
        difference = Estimate(None) if np.isnan(b - a) else resampler.figure(b - a, drawn_b - drawn_a)
        contests.append(Contest(key, ours, heads, difference, better))
    scores = [score(table, unit) for table in tables]
    bins = (tuple(reliability(s, uniform_edges())) for s in scores)
    return TrainedReport(len(tables[0]), len(scores[0]), name, tuple(contests), *bins)


def _figures(table: StepTable, unit: np.ndarray, resampler: Resampler) -> dict[str, tuple[float, np.ndarray]]:
    """Value and resamples of every figure of one side."""
    scores, edges = score(table, unit), uniform_edges()
    partly = table.take(table.partly)
    place, at = ranks(partly.confidence, partly.boundary) + 1, unit[table.partly]
    ones = np.ones(len(scores)), np.ones(len(place))
    rows = {
        "brier": ((scores.confidence - scores.accepted) ** 2, ones[0], scores.unit),
        "rank": (place.astype(float), ones[1], at),
    }
    rows |= {name: ((place <= most).astype(float), ones[1], at) for name, most in (("first", 1), ("within", TOP))}
    found = {
        name: (float(values.mean()) if len(values) else float("nan"), resampler.ratios(values, count, own))
        for name, (values, count, own) in rows.items()
    }
    own_error = expected_calibration_error(scores.confidence, scores.accepted, edges)
    return found | {
        "error": (own_error, resampled_error(scores, scores.confidence, edges, resampler)),
        "auroc": auroc(scores, resampler),
    }


def auroc(scores: Scores, resampler: Resampler) -> tuple[float, np.ndarray]:
    """Returns the probability that an accepted position has a higher confidence than a rejected one, ties counting half; and
    resamples of it."""
    right = scores.accepted > 0
    value, owner = scores.confidence[right], scores.unit[right]
    total, drawn = 0.0, np.zeros(RESAMPLES)
    losers = np.unique(scores.unit[~right])
    for some in (losers[n : n + UNITS_AT_ONCE] for n in range(0, len(losers), UNITS_AT_ONCE)):
        # by unit: how often one of its accepted ones beats another's rejected
        pairs = np.zeros((resampler.count, len(some)))
        for column, other in enumerate(some):
            rejected = np.sort(scores.confidence[~right & (scores.unit == other)])
            wins = (np.searchsorted(rejected, value, "left") + np.searchsorted(rejected, value, "right")) / 2
            pairs[:, column] = np.bincount(owner, weights=wins, minlength=resampler.count)
        total += float(pairs.sum())
        drawn += resampler.products(pairs, some)
    below = float(right.sum() * (~right).sum())
    sides = (resampler.sums(side.astype(float), scores.unit) for side in (right, ~right))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (total / below if below else float("nan")), drawn / math.prod(sides)


def read_trained(report: TrainedReport) -> dict[str, str]:
    """Returns a sentence for each figure by name; a difference whose interval contains 0 is not called one."""
    said = {}
    for c in report.contests:
        if c.softmax.value is None or c.head.value is None:
            continue
        low, high = c.difference.low, c.difference.high
        clear = low is not None and high is not None and (low > 0 or high < 0)
        winner = "head" if (c.difference.value or 0) * c.better > 0 else "softmax"
        interval = "" if low is None else f", difference {c.difference.value:+.3f} ({low:+.3f} to {high:+.3f})"
        verdict = f"the {winner} is better" if clear else "no clear difference"
        said[c.name] = f"{NAMES[c.name]}: softmax {c.softmax.value:.3f}, head {c.head.value:.3f}{interval}: {verdict}"
    return said
