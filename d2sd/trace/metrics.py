"""Totals over the steps of a run: acceptance, boundary hits, speed, stage shares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from d2sd.trace.events import StageSeconds, StepDone


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


def totals(steps: Iterable[StepDone]) -> Totals:
    """Totals of these steps of one run; they are gone through once."""
    count, tokens, nodes, seconds = 0, 0, 0, 0.0
    hits: list[bool] = []
    stages = {f.name: 0.0 for f in fields(StageSeconds)}
    for step in steps:
        count += 1
        tokens += len(step.committed)
        nodes += len(step.nodes)
        seconds = step.elapsed
        for name in stages:
            stages[name] += getattr(step.seconds, name)
        if (hit := boundary_hit(step)) is not None:
            hits.append(hit)
    return Totals(
        tokens=tokens,
        steps=count,
        mean_acceptance_length=tokens / count if count else 0.0,
        nodes_per_step=nodes / count if count else 0.0,
        boundary_hit_rate=sum(hits) / len(hits) if hits else None,
        tokens_per_second=tokens / seconds if seconds else 0.0,
        seconds=seconds,
        stage_seconds=stages,
    )


def acceptance_by_depth(steps: Iterable[StepDone]) -> list[tuple[int, int, float]]:
    """(depth, steps that reached it, share accepted) in the token tree; depth 1 is the first token below the anchor.

    A step reaches depth d when the target chose at the accepted node above (the anchor for d = 1) and the tree goes on
    below that node.
    """
    reached: dict[int, list[bool]] = {}
    for step in steps:
        inner = {n.parent for n in step.nodes}
        for depth, choice in enumerate(step.choices, 1):
            if choice.node in inner:
                reached.setdefault(depth, []).append(len(step.accepted) >= depth)
    return [(depth, len(r), sum(r) / len(r)) for depth, r in sorted(reached.items())]


def boundary_hit(step: StepDone) -> bool | None:
    """Whether the true boundary was a selected prefix; None where it was not seen, or there was none."""
    drafted = len(step.boundary_posterior)
    if step.actual_boundary is None or step.actual_boundary == drafted or not step.selected_prefixes:
        return None
    return step.actual_boundary in step.selected_prefixes
