"""Reliability of a drafter's confidence: bins, ECE, Brier score.

Only positions up to the first rejection are scored, and only as far as tokens were committed: whether a later token
would have been accepted was never observed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from d2sd.calibration.resampling import MIN_UNITS, Estimate, Resampled, Resampler, wilson
from d2sd.calibration.steps import UNSEEN, StepTable, observed
from d2sd.trace.events import StepDone

BINS = 10


@dataclass(frozen=True, slots=True)
class Scores:
    """M scored positions.

    confidence: (M,) in [0, 1]; NaN if not recorded.
    accepted: (M,) 0 or 1.
    position: (M,) k, from 1.
    row: (M,) of the step in its table.
    unit: (M,) that the step is resampled with.
    """

    confidence: np.ndarray
    accepted: np.ndarray
    position: np.ndarray
    row: np.ndarray
    unit: np.ndarray

    def __len__(self) -> int:
        return len(self.confidence)

    def known(self) -> Scores:
        """Returns the positions with a confidence."""
        return self.take(~np.isnan(self.confidence))

    def take(self, rows: np.ndarray) -> Scores:
        """Returns the positions at these row numbers (or where this mask is true)."""
        return Scores(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True, slots=True)
class Bin:
    """Positions of about the same confidence; ``low``/``high`` bound the accepted share (Wilson, 95%)."""

    left: float
    right: float
    count: int
    confidence: float
    accepted: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PositionAcceptance:
    """Acceptance of the first draft at position k, among the ``count`` steps that reached it; interval as in ``Bin``.

    confidence: mean confidence; None if any of these steps has none."""

    position: int
    count: int
    confidence: float | None
    accepted: float
    low: float
    high: float


def scored_positions(step: StepDone) -> list[tuple[float, bool]]:
    """Returns (c_k, accepted) of the first draft's observed positions (see ``StepTable.scored``); empty without confidences."""
    matched, boundary = observed(step)
    if step.first_draft is None or matched == UNSEEN:
        return []
    end = matched + (boundary != UNSEEN)
    return [(c, k < matched) for k, c in enumerate(step.first_draft.confidence[:end])]


def bin_gaps(scored: Sequence[tuple[float, bool]]) -> tuple[float, ...]:
    """Returns Σ (accepted − confidence) over the scored positions in each bin of ``uniform_edges()``. Summed over several
    runs, these give the ECE of all of them."""
    if not scored:
        return ()
    confidence, accepted = np.array(scored, dtype=float).T
    edges = uniform_edges()
    return tuple(np.bincount(places(confidence, edges), accepted - confidence, len(edges) - 1).tolist())


def score(table: StepTable, unit: np.ndarray) -> Scores:
    """Returns the scored positions of the table's steps; ``unit`` (N,) is the resampling unit of each step."""
    row, at = np.nonzero(table.scored)
    accepted = (at < table.matched[row]).astype(float)
    return Scores(table.confidence[row, at], accepted, at + 1, row, unit[row])


def uniform_edges() -> np.ndarray:
    """Returns the edges of ``BINS`` bins of equal width."""
    return np.linspace(0, 1, BINS + 1)


def equal_mass_edges(confidence: np.ndarray) -> np.ndarray:
    """Returns bin edges with about equally many positions between them (adaptive ECE)."""
    inner = np.quantile(confidence, np.linspace(0, 1, BINS + 1)[1:-1]) if len(confidence) else []
    return np.unique(np.concatenate([[0.0], inner, [1.0]]))


def places(confidence: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Returns the bin of each confidence, −1 for unknown ones; the last bin includes its right edge."""
    found = np.clip(np.searchsorted(edges, confidence, side="right") - 1, 0, len(edges) - 2)
    return np.where(np.isnan(confidence), -1, found)


def reliability(scores: Scores, edges: np.ndarray) -> list[Bin]:
    """Returns all bins of a reliability diagram, in order; an empty one has count 0 and the confidence of its centre."""
    at, size = places(scores.confidence, edges), len(edges) - 1
    bounds = zip(edges[:-1].round(9).tolist(), edges[1:].round(9).tolist(), strict=True)
    return [
        Bin(left, end, n, c / n, a / n, *wilson(a / n, n)) if n else Bin(left, end, 0, (left + end) / 2, 0.0, 0.0, 1.0)
        for (left, end), (n, c, a) in zip(bounds, _sums(at, size, scores), strict=True)
    ]


def acceptance_by_position(scores: Scores) -> list[PositionAcceptance]:
    """Acceptance at every position that was reached; position 1 is the first drafted token."""
    sums = _sums(scores.position, int(scores.position.max(initial=0)) + 1, scores)
    return [
        PositionAcceptance(k, n, None if np.isnan(c) else c / n, a / n, *wilson(a / n, n))
        for k, (n, c, a) in enumerate(sums)
        if n
    ]


def _sums(at: np.ndarray, size: int, scores: Scores) -> list[tuple[int, float, float]]:
    """Count, Σ confidence and Σ accepted by place."""
    weights = (None, scores.confidence, scores.accepted)
    columns = (np.bincount(at, weights=w, minlength=size).tolist() for w in weights)
    return list(zip(*columns, strict=True))


def expected_calibration_error(confidence: np.ndarray, accepted: np.ndarray, edges: np.ndarray) -> float:
    """ECE: Σ over bins of (share of positions in the bin) · |accepted share − mean confidence|."""
    if not len(confidence):
        return float("nan")
    gaps = np.bincount(places(confidence, edges), weights=accepted - confidence, minlength=len(edges) - 1)
    return float(np.abs(gaps).sum() / len(confidence))


def resampled_error(scores: Scores, confidence: np.ndarray, edges: np.ndarray, resampler: Resampler) -> Resampled:
    """Returns the ECE of these confidences of the scored positions with its resamples; the bins are the same in all of them."""
    gaps = np.zeros((len(scores), len(edges) - 1))
    gaps[np.arange(len(scores)), places(confidence, edges)] = scores.accepted - confidence
    summed = resampler.sums(gaps, scores.unit)
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = np.abs(summed).sum(1) / resampler.sums(np.ones(len(scores)), scores.unit)
    return Resampled(expected_calibration_error(confidence, scores.accepted, edges), errors)


def calibration_error(scores: Scores, edges: np.ndarray, resampler: Resampler) -> Estimate:
    """ECE with its interval."""
    return resampler.figure(*resampled_error(scores, scores.confidence, edges, resampler))


def chance_error(confidence: np.ndarray, edges: np.ndarray) -> float:
    """Returns the expected ECE of a perfectly calibrated drafter with as many positions.

    A bin's summed gap is then close to normal with variance Σ c(1−c), and E|x| = σ·√(2/π).
    """
    if not len(confidence):
        return float("nan")
    spread = np.bincount(places(confidence, edges), weights=confidence * (1 - confidence), minlength=len(edges) - 1)
    return float(np.sqrt(2 / np.pi * spread).sum() / len(confidence))


def brier_score(scores: Scores, resampler: Resampler) -> Estimate:
    """Mean squared difference between confidence and outcome, with its interval."""
    return resampler.mean((scores.confidence - scores.accepted) ** 2, scores.unit)


def confidence_figures(scores: Scores, resampler: Resampler) -> dict[str, Any]:
    """Returns the figures of a drafter's confidence that the reports of both drafters have, by the names of their fields."""
    edges, some = uniform_edges(), len(scores) > 0
    return {
        "positions": len(scores),
        "confidence": float(scores.confidence.mean()) if some else None,
        "accepted": float(scores.accepted.mean()) if some else None,
        "gap": resampler.mean(scores.accepted - scores.confidence, scores.unit),
        "error": calibration_error(scores, edges, resampler),
        "chance": chance_error(scores.confidence, edges) if some else None,
        "uniform": tuple(reliability(scores, edges)),
    }


# By group: the prompt's domain, or the kind of drafted token.

KINDS = ("word", "rest of a word", "number", "punctuation", "space or line end", "other")
NUMBER = re.compile(r"\s*[0-9][0-9.,:/-]*")
SIGNS = re.compile(r"\s*[^\w\s]+\s*")


@dataclass(frozen=True, slots=True)
class Group:
    """Figures of a group's scored positions. ``tokens`` (α) and ``repaired`` are over its steps if whole steps are grouped,
    otherwise None."""

    name: str
    positions: int
    confidence: float | None
    accepted: float | None
    gap: Estimate
    error: float | None
    tokens: Estimate | None = None
    repaired: Estimate | None = None


def token_kind(text: str) -> str:
    """Returns the kind of a token; a word starts with a space or a capital letter, other letters continue a word."""
    if not text.strip():
        return "space or line end" if text else "other"
    if NUMBER.fullmatch(text):
        return "number"
    if SIGNS.fullmatch(text):
        return "punctuation"
    if text.strip().replace("'", "").replace("’", "").isalpha():
        return "word" if text[0].isspace() or text[0].isupper() else "rest of a word"
    return "other"


def token_kinds(steps: Sequence[StepDone], scores: Scores) -> np.ndarray:
    """Returns the index in ``KINDS`` of the token at each scored position, (M,)."""
    known: dict[str, int] = {}
    out = np.empty(len(scores), int)
    drafts = [s.first_draft for s in steps]
    for n, (row, position) in enumerate(zip(scores.row.tolist(), scores.position.tolist(), strict=True)):
        draft = drafts[row]
        text = draft.texts[position - 1] if draft and position <= len(draft.texts) else ""
        if text not in known:
            known[text] = KINDS.index(token_kind(text))
        out[n] = known[text]
    return out


def by_kind(scores: Scores, kinds: np.ndarray, resampler: Resampler) -> tuple[Group, ...]:
    """Returns one group for every kind of token that occurs."""
    groups = (_group(name, scores, kinds == n, resampler) for n, name in enumerate(KINDS))
    return tuple(g for g in groups if g.positions)


def by_domain(
    table: StepTable, scores: Scores, unit: np.ndarray, domains: Sequence[str], resampler: Resampler
) -> tuple[Group, ...]:
    """Returns one group for every domain, or none if all are the same.

    domains: domain of each run, by its number in the table."""
    names = sorted(set(domains))
    if len(names) < 2:
        return ()
    of_step = np.array([names.index(d) for d in domains], int)[table.run]
    out = []
    for n, name in enumerate(names):
        steps = of_step == n
        partly = steps & table.redrafted
        tokens = resampler.mean(table.committed[steps], unit[steps])
        share = resampler.share(table.repaired[partly], unit[partly])
        out.append(replace(_group(name, scores, steps[scores.row], resampler), tokens=tokens, repaired=share))
    return tuple(out)


def _group(name: str, scores: Scores, where: np.ndarray, resampler: Resampler) -> Group:
    confidence, accepted, count = scores.confidence[where], scores.accepted[where], int(where.sum())
    if not count:
        return Group(name, 0, None, None, Estimate(None), None)
    gap = resampler.mean(accepted - confidence, scores.unit[where])
    return Group(
        name,
        count,
        float(confidence.mean()),
        float(accepted.mean()),
        Estimate(gap.value) if len(np.unique(scores.unit[where])) < MIN_UNITS else gap,  # resamples hardly differ
        expected_calibration_error(confidence, accepted, uniform_edges()),
    )
