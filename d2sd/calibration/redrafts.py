"""The second drafter: its calibration after correct prefixes, and expected against actual gain of re-drafts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.calibration.scores import (
    Bin,
    Position,
    Scores,
    acceptance_by_position,
    calibration_error,
    chance_error,
    places,
    reliability,
    uniform_edges,
)
from d2sd.calibration.steps import StepTable
from d2sd.trace.events import Draft, StepDone

GAIN_EDGES = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 1e9)


@dataclass(frozen=True, slots=True)
class RedraftTable:
    """M re-drafts of the second drafter, and S scored tokens of those whose prefix was right.

    row: (M,) row of the step in the ``StepTable``.
    branch: (M,) number of the re-draft, from 1.
    right: (M,) whether the prefix was accepted and the text continued after it.
    predicted: (M,) expected gain in tokens, r(i) · (c₁ + c₁c₂ + …); NaN for a re-draft of a re-draft, which has no r.
    gained: (M,) actual gain in tokens.
    scored_row: (S,) row of the token's step.
    position: (S,) position of the token after the prefix, from 1.
    confidence, accepted: (S,) of the token.
    """

    row: np.ndarray
    branch: np.ndarray
    right: np.ndarray
    predicted: np.ndarray
    gained: np.ndarray
    scored_row: np.ndarray
    position: np.ndarray
    confidence: np.ndarray
    accepted: np.ndarray


@dataclass(frozen=True, slots=True)
class GainBin:
    """Re-drafts with about the same expected gain: mean expected (``predicted``) and actual (``gained``) gain in tokens."""

    left: float
    right: float
    count: int
    predicted: float
    gained: Estimate


@dataclass(frozen=True, slots=True)
class Second:
    """Figures of the second drafter's confidence, as those of the first one in ``Report``.

    redrafts, right: number of re-drafts, and of those with a correct prefix.
    predicted, gained: mean expected and actual gain per re-draft, in tokens.
    """

    redrafts: int
    right: int
    positions: int
    confidence: float | None
    accepted: float | None
    gap: Estimate
    error: Estimate
    chance: float | None
    uniform: tuple[Bin, ...]
    by_position: tuple[Position, ...]
    predicted: float | None
    gained: Estimate
    gains: tuple[GainBin, ...]


def tabulate_redrafts(runs: Sequence[Sequence[StepDone]], table: StepTable) -> RedraftTable:
    """Returns the re-drafts of the runs in ``table``."""
    drafts, scored = [], []
    for row, step in enumerate(s for run in runs for s in run):
        written, known = tuple(c.token for c in step.committed), candidates(step)
        for branch, draft in enumerate(step.branches, 1):
            if draft.drafter != "second":
                continue
            right = len(written) > draft.prefix and written[: draft.prefix] == known[branch][: draft.prefix]
            drafts.append((row, branch, right, promised(step, draft)))
            if right:
                scored += [(row, *s) for s in scored_tokens(draft, written)]
    columns = list(zip(*drafts, strict=True)) or [(), (), (), ()]
    tokens = list(zip(*scored, strict=True)) or [(), (), (), ()]
    rows, branches = np.array(columns[0], int), np.array(columns[1], int)
    return RedraftTable(
        rows,
        branches,
        np.array(columns[2], bool),
        np.array(columns[3], float),
        table.gained[rows, branches].astype(float),
        *(np.array(tokens[n], kind) for n, kind in enumerate((int, int, float, float))),
    )


def candidates(step: StepDone) -> list[tuple[int, ...]]:
    """Returns all tokens of every candidate: the prefix that it continues from an earlier candidate, and its drafted tokens.
    Number 0 is the first draft."""
    known = [step.first_draft.ids if step.first_draft else ()]
    for draft in step.branches:
        known.append((*known[draft.base if draft.base < len(known) else 0][: draft.prefix], *draft.ids))
    return known


def promised(step: StepDone, draft: Draft) -> float:
    """Returns the expected gain of a re-draft in tokens, by both drafters' confidence."""
    chances = (*step.boundary_posterior, step.full_acceptance)
    if draft.base or draft.prefix >= len(chances):
        return float("nan")
    return chances[draft.prefix] * float(np.cumprod(draft.confidence).sum())


def scored_tokens(draft: Draft, written: Sequence[int]) -> Iterator[tuple[int, float, float]]:
    """Yields position, confidence and acceptance of a re-draft's tokens, up to the first rejected one."""
    seen = zip(draft.ids, draft.confidence, written[draft.prefix :], strict=False)
    for position, (token, confidence, wrote) in enumerate(seen, 1):
        yield position, confidence, float(token == wrote)
        if token != wrote:
            return


def second_scores(redrafts: RedraftTable, unit: np.ndarray) -> Scores:
    """The scored tokens; ``unit`` (N,) numbers what each step is resampled with."""
    row = redrafts.scored_row
    return Scores(redrafts.confidence, redrafts.accepted, redrafts.position, row, unit[row])


def second_report(redrafts: RedraftTable, unit: np.ndarray, resampler: Resampler) -> Second | None:
    """Returns all figures; None if nothing was re-drafted."""
    if not len(redrafts.row):
        return None
    scores, edges, some = second_scores(redrafts, unit), uniform_edges(), len(redrafts.confidence) > 0
    known = ~np.isnan(redrafts.predicted)
    return Second(
        redrafts=len(redrafts.row),
        right=int(redrafts.right.sum()),
        positions=len(scores),
        confidence=float(scores.confidence.mean()) if some else None,
        accepted=float(scores.accepted.mean()) if some else None,
        gap=resampler.ratio(scores.accepted - scores.confidence, np.ones(len(scores)), scores.unit),
        error=calibration_error(scores, edges, resampler),
        chance=chance_error(scores.confidence, edges) if some else None,
        uniform=tuple(reliability(scores, edges)),
        by_position=tuple(acceptance_by_position(scores)),
        predicted=float(redrafts.predicted[known].mean()) if known.any() else None,
        gained=resampler.ratio(redrafts.gained[known], np.ones(int(known.sum())), unit[redrafts.row[known]]),
        gains=tuple(_gain_bins(redrafts, unit, resampler)),
    )


def gain_places(redrafts: RedraftTable) -> np.ndarray:
    """Returns the bin of each re-draft's expected gain, (M,); −1 for none."""
    known = ~np.isnan(redrafts.predicted)
    return np.where(known, places(np.nan_to_num(redrafts.predicted), np.array(GAIN_EDGES)), -1)


def _gain_bins(redrafts: RedraftTable, unit: np.ndarray, resampler: Resampler) -> Iterator[GainBin]:
    at = gain_places(redrafts)
    for n in range(len(GAIN_EDGES) - 1):
        here = at == n
        count = int(here.sum())
        predicted = float(redrafts.predicted[here].mean()) if count else 0.0
        gained = resampler.ratio(redrafts.gained[here], np.ones(count), unit[redrafts.row[here]])
        yield GainBin(GAIN_EDGES[n], GAIN_EDGES[n + 1], count, predicted, gained)
