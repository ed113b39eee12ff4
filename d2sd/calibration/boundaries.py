"""Compares predicted with actual rejection boundaries of first drafts, and counts the tokens that each draft adds.

The boundary of a first draft is the number of its leading tokens that the target accepts. r(i) is the predicted probability that
exactly i drafted tokens are accepted and the next one is rejected (``boundary_posteriors``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.calibration.scores import (
    ConfidenceFigures,
    PositionAcceptance,
    acceptance_by_position,
    confidence_figures,
)
from d2sd.calibration.steps import RunTables, Scores, StepTable
from d2sd.tree.boundary import boundary_posteriors

USUAL_K = 4  # for figures about runs whose K is unknown or differs


@dataclass(frozen=True, slots=True)
class Matrix:
    """Confusion matrix of the outcomes of first drafts, over the steps with confidences.

    Outcome i < G means that exactly i drafted tokens are accepted, and outcome G that all are; G is the longest draft's length.

    counts: ``counts[actual][predicted]`` is the number of steps with these two outcomes, (G+1, G+1).
    unseen: number of steps with a draft whose boundary is unknown; they are not in ``counts``.
    """

    counts: tuple[tuple[int, ...], ...]
    unseen: int


@dataclass(frozen=True, slots=True)
class Ranks:
    """Rank of the true boundary among all r(i), over the steps with confidences and a rejected first-draft token.

    The likeliest boundary has rank 1. A set of prefixes hits if the true boundary is one of them.

    steps: number of these steps.
    counts: ``counts[n]`` is the number of steps in which the true boundary has rank n+1.
    within: ``within[n]`` is the share of steps whose true boundary has at most rank n+1: the hit rate at K = n+1.
    chance: ``chance[n]`` is the expected hit rate of n+1 prefixes drawn at random.
    chosen: number of steps that re-drafted. All following figures are over these steps; without them, they are None.
    used: hit rate of the prefixes that were re-drafted from.
    chance_used: expected hit rate of the same number of prefixes drawn at random.
    repaired: share of steps that re-drafted from the true boundary and thereby added tokens.
    mean_used: mean number of prefixes that were re-drafted from.
    num_branches: K of the runs; None if it is unknown or differs, as in cost-aware runs, or if other confidences selected the prefixes.
    """

    steps: int
    counts: tuple[int, ...]
    within: tuple[Estimate, ...]
    chance: tuple[float, ...]
    chosen: int
    used: Estimate
    chance_used: float | None
    repaired: Estimate
    mean_used: float | None
    num_branches: int | None = None


def predicted_outcomes(table: StepTable) -> np.ndarray:
    """Returns the likeliest outcome of each step, (N,), numbered as in ``Matrix``."""
    r, full = boundary_posteriors(table.confidence)
    if not r.shape[1]:
        return np.zeros(len(table), int)
    best = r.argmax(1)
    return np.where(full > r[np.arange(len(r)), best], r.shape[1], best)


def actual_outcomes(table: StepTable) -> np.ndarray:
    """Returns the actual outcome of each step, (N,), numbered as in ``Matrix``; meaningless if the boundary is unknown."""
    return np.where(table.boundary >= table.drafted, table.confidence.shape[1], table.boundary)


def outcome_matrix(table: StepTable) -> Matrix:
    """Returns predicted against actual outcomes of the steps with confidences and a known boundary."""
    table = table.take(table.has_confidence)
    seen, size = table.boundary_known, table.confidence.shape[1] + 1
    cells = actual_outcomes(table)[seen] * size + predicted_outcomes(table)[seen]
    counts = np.bincount(cells, minlength=size * size).reshape(size, size)
    return Matrix(tuple(map(tuple, counts.tolist())), int((~seen & (table.drafted > 0)).sum()))


def prefix_ranks(confidence: np.ndarray) -> np.ndarray:
    """Returns, for each of N drafts, the rank of every boundary i by its predicted probability r(i), (N, G).

    The likeliest boundary has rank 0. Of equally likely boundaries, the smaller one comes first.

    confidence: column of ``StepTable``, (N, G).
    """
    r, _ = boundary_posteriors(confidence)
    order = np.argsort(-r, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(r.shape[1])[None], axis=1)
    return rank


def ranks(confidence: np.ndarray, boundary: np.ndarray) -> np.ndarray:
    """Returns, for each of N drafts, the rank of the true boundary by its predicted probability, as in ``prefix_ranks``, (N,).

    The rank is G if the boundary is unknown or all drafted tokens were accepted.

    confidence, boundary: columns of ``StepTable``, (N, G) and (N,).
    """
    size = confidence.shape[1]
    predictable = (boundary >= 0) & (boundary < (~np.isnan(confidence)).sum(1))
    rank = np.full(len(confidence), size)
    rank[predictable] = prefix_ranks(confidence[predictable])[np.arange(predictable.sum()), boundary[predictable]]
    return rank


def rank_table(table: StepTable, unit: np.ndarray, resampler: Resampler, num_branches: int | None) -> Ranks:
    """Returns the ranks of true boundaries, and hit rates.

    unit: resampling unit of each step, (N,).
    num_branches: as in ``Ranks``.
    """
    predictable = table.rejected & table.has_confidence
    steps, unit = table.take(predictable), unit[predictable]
    place = ranks(steps.confidence, steps.boundary)
    size = int(steps.drafted.max(initial=0))
    chosen = steps.selected > 0
    any_chosen = bool(chosen.any())
    return Ranks(
        steps=len(steps),
        counts=tuple(np.bincount(place, minlength=size)[:size].tolist()),
        within=tuple(resampler.share(place <= n, unit) for n in range(size)),
        chance=tuple(float(np.minimum(1, (n + 1) / steps.drafted).mean()) for n in range(size)),
        chosen=int(chosen.sum()),
        used=resampler.share(steps.hit[chosen], unit[chosen]),
        chance_used=float(np.minimum(1, steps.selected / steps.drafted)[chosen].mean()) if any_chosen else None,
        repaired=resampler.share(steps.repaired[chosen], unit[chosen]),
        mean_used=float(steps.selected[chosen].mean()) if any_chosen else None,
        num_branches=num_branches if any_chosen else None,
    )


@dataclass(frozen=True, slots=True)
class DraftConfidence(ConfidenceFigures):
    """Figures of the confidence of first drafts, by the softmax or by a confidence head.

    by_position: acceptance by position; includes tokens without a confidence.
    matrix: numbers of steps by predicted and actual boundary.
    ranks: how often the actual boundary was among those predicted as likeliest.
    """

    by_position: tuple[PositionAcceptance, ...]
    matrix: Matrix
    ranks: Ranks


def draft_confidence(
    table: StepTable, scores: Scores, unit: np.ndarray, resampler: Resampler, num_branches: int | None
) -> dict[str, Any]:
    """Returns the fields of ``DraftConfidence``. Its source of confidences is that of ``table`` and ``scores``.

    unit: resampling unit of each step, (N,).
    num_branches: as in ``Ranks``.
    """
    return {
        **confidence_figures(scores.known(), unit, resampler),
        "by_position": tuple(acceptance_by_position(scores)),
        "matrix": outcome_matrix(table),
        "ranks": rank_table(table, unit, resampler, num_branches),
    }


# Gain and cost of each draft: tokens gained, and nodes verified without being accepted.


@dataclass(frozen=True, slots=True)
class Gain:
    """Tokens and nodes from one source: a draft, or lower-ranked alternatives. A token in several drafts counts only for the first one.

    branch: the source: 0 = first draft, j = re-draft j, None = lower-ranked alternatives of a drafter.
    present, won: number of steps with this source, and number of steps in which the source added a token.
    tokens, nodes: mean number of accepted tokens and of verified nodes from this source, over all steps.
    wasted: share of the source's verified nodes that were not accepted; None if no node was verified.
    """

    branch: int | None
    present: int
    won: int
    tokens: Estimate
    nodes: float
    wasted: float | None


@dataclass(frozen=True, slots=True)
class Gains:
    """Committed tokens and verified nodes per step.

    tokens_per_step: α, committed tokens including the bonus token.
    nodes_per_step: verified nodes, including the anchor, which no entry of ``sources`` counts.
    wasted: share of the verified nodes, without the anchor, that were not accepted; None if no node was verified.
    bonus: bonus tokens per step.
    per_redraft: mean number of tokens that a re-draft adds.
    sources: tokens and nodes by source.
    """

    tokens_per_step: Estimate
    nodes_per_step: float
    wasted: float | None
    bonus: float
    per_redraft: Estimate
    sources: tuple[Gain, ...]


def gains(table: StepTable, unit: np.ndarray, resampler: Resampler) -> Gains:
    count = max(1, len(table))
    last = table.nodes.shape[1] - 1
    sources = []
    for column in range(last + 1):
        nodes, gained = table.nodes[:, column], table.gained[:, column]
        if column == last:
            present = nodes > 0
        else:
            present = table.branches >= column if column else table.drafted > 0
        if present.any():
            sources.append(
                Gain(
                    None if column == last else column,
                    int(present.sum()),
                    int((gained > 0).sum()),
                    resampler.mean(gained, unit),
                    float(nodes.sum() / count),
                    _wasted(nodes, gained),
                )
            )
    bonus = table.committed - table.gained.sum(1)
    return Gains(
        resampler.mean(table.committed, unit),
        1 + float(table.nodes.sum() / count),
        _wasted(table.nodes, table.gained),
        float(bonus.sum() / count),
        resampler.ratio(table.gained[:, 1:-1].sum(1).astype(float), table.branches.astype(float), unit),
        tuple(sources),
    )


def _wasted(nodes: np.ndarray, gained: np.ndarray) -> float | None:
    return float(1 - gained.sum() / nodes.sum()) if nodes.sum() else None


# The second drafter: its calibration after correct prefixes.


@dataclass(frozen=True, slots=True)
class Second(ConfidenceFigures):
    """Figures of the second drafter's confidence.

    redrafts: number of re-drafts.
    right: number of re-drafts from a prefix that was accepted (``RunTables.right``).
    """

    redrafts: int
    right: int


def second_report(tables: RunTables, unit: np.ndarray, resampler: Resampler) -> Second | None:
    """Returns the second drafter's figures; None if nothing was re-drafted. unit: resampling unit of each step, (N,)."""
    if not len(tables.right):
        return None
    figures = confidence_figures(tables.redrafted, unit, resampler)
    return Second(**figures, redrafts=len(tables.right), right=int(tables.right.sum()))
