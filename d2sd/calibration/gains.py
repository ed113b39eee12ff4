"""Gain and cost of each draft: tokens gained, and nodes verified without being accepted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.calibration.steps import StepTable


@dataclass(frozen=True, slots=True)
class Gain:
    """One source of tokens. A token in several drafts counts for the first of them, so a re-draft counts only what it adds.

    branch: 0 = first draft, j = re-draft j, None = lower-ranked alternatives of a drafter.
    present, won: number of steps with this source, and of those in which it added a token.
    tokens, nodes: accepted and verified per step, means over all steps.
    wasted: share of its verified nodes that were not accepted.
    """

    branch: int | None
    present: int
    won: int
    tokens: Estimate
    nodes: float
    wasted: float | None


@dataclass(frozen=True, slots=True)
class Gains:
    """Tokens committed per step (α, bonus included), nodes verified per step (anchor included), and their sources.

    per_redraft: tokens added per draft after the first, without lower-ranked alternatives.
    """

    tokens_per_step: Estimate
    nodes_per_step: float
    wasted: float | None
    bonus: float
    per_redraft: Estimate
    sources: tuple[Gain, ...]


def gains(table: StepTable, unit: np.ndarray, resampler: Resampler) -> Gains:
    """Returns tokens and nodes per step by source."""
    ones, count = np.ones(len(table)), max(1, len(table))
    last = table.nodes.shape[1] - 1
    sources = []
    for column in range(last + 1):
        nodes, gained = table.nodes[:, column], table.gained[:, column]
        if column == last:
            there = nodes > 0
        elif column:
            there = table.branches >= column
        else:
            there = table.drafted > 0
        if there.any():
            sources.append(
                Gain(
                    None if column == last else column,
                    int(there.sum()),
                    int((gained > 0).sum()),
                    resampler.ratio(gained.astype(float), ones, unit),
                    float(nodes.sum() / count),
                    _wasted(nodes, gained),
                )
            )
    bonus = table.committed - table.gained.sum(1)
    return Gains(
        resampler.ratio(table.committed.astype(float), ones, unit),
        1 + float(table.nodes.sum() / count),
        _wasted(table.nodes, table.gained),
        float(bonus.sum() / count),
        resampler.ratio(table.gained[:, 1:-1].sum(1).astype(float), table.branches.astype(float), unit),
        tuple(sources),
    )


def _wasted(nodes: np.ndarray, gained: np.ndarray) -> float | None:
    return float(1 - gained.sum() / nodes.sum()) if nodes.sum() else None
