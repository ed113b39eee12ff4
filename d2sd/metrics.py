"""Totals over the steps of a run: acceptance, boundary hits, speed, stage shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from d2sd.events import StageSeconds, StepDone


@dataclass(frozen=True, slots=True)
class Totals:
    """mean_acceptance_length: committed tokens per step, bonus included (α); nodes_per_step: verified tree nodes,
    anchor included; boundary_hit_rate: share of steps, among those whose first draft was partly rejected and
    whose prefixes were chosen, where the true boundary was among them (None: no such step);
    seconds exclude prefill; stage_seconds: totals by stage."""

    tokens: int
    steps: int
    mean_acceptance_length: float
    nodes_per_step: float
    boundary_hit_rate: float | None
    tokens_per_second: float
    seconds: float
    stage_seconds: dict[str, float]


def totals(steps: Sequence[StepDone]) -> Totals:
    """Totals of these steps of one run."""
    count, tokens = len(steps), sum(len(s.committed) for s in steps)
    seconds = steps[-1].elapsed if steps else 0.0
    hits = [hit for s in steps if (hit := boundary_hit(s)) is not None]
    stages = {f.name: sum(getattr(s.seconds, f.name) for s in steps) for f in fields(StageSeconds)}
    return Totals(
        tokens,
        count,
        tokens / count if count else 0.0,
        sum(len(s.nodes) for s in steps) / count if count else 0.0,
        sum(hits) / len(hits) if hits else None,
        tokens / seconds if seconds else 0.0,
        seconds,
        stages,
    )


def boundary_hit(step: StepDone) -> bool | None:
    """Whether the true boundary was a selected prefix; None where it was not seen, or there was none."""
    drafted = len(step.boundary_posterior)
    if step.actual_boundary is None or step.actual_boundary == drafted or not step.selected_prefixes:
        return None
    return step.actual_boundary in step.selected_prefixes
