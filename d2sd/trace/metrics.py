"""Totals over the steps of a run: acceptance, what came of the predictions, speed, stage shares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

from d2sd.trace.events import PrefillDone, StageSeconds, StepDone

Prediction = Literal["repaired", "found", "missed", "all"]


@dataclass(frozen=True, slots=True)
class Totals:
    """Figures of one run. Prefill counts in ``tokens`` alone.

    tokens: of the whole output.
    mean_acceptance_length: α, committed tokens per step, bonus included.
    nodes_per_step: verified tree nodes, anchor included.
    boundary_hit_rate: how often the true boundary was selected, over steps that selected prefixes and saw a rejection; None
        without such a step.
    repaired_rate: how often re-drafts also added tokens there, over the same steps.
    tokens_per_redraft: tokens that a draft after the first added, on average; None where there was none.
    stage_seconds: totals by stage.
    """

    tokens: int
    steps: int
    mean_acceptance_length: float
    nodes_per_step: float
    boundary_hit_rate: float | None
    repaired_rate: float | None
    tokens_per_redraft: float | None
    tokens_per_second: float
    seconds: float
    stage_seconds: dict[str, float]


def totals(steps: Iterable[StepDone], prefill: PrefillDone | None = None) -> Totals:
    """Totals of these steps of one run and of its prefill; the steps are gone through once."""
    count, tokens, nodes, seconds = 0, 0, 0, 0.0
    predictions: list[Prediction] = []
    gained, redrafts = 0, 0
    stages = {f.name: 0.0 for f in fields(StageSeconds)}
    for step in steps:
        count += 1
        tokens += len(step.committed)
        nodes += len(step.nodes)
        seconds = step.elapsed
        for name in stages:
            stages[name] += getattr(step.seconds, name)
        gained += tokens_gained(step)
        redrafts += len(step.branches)
        if (outcome := prediction(step)) not in (None, "all"):
            predictions.append(outcome)
    return Totals(
        tokens=tokens + (len(prefill.committed) if prefill else 0),
        steps=count,
        mean_acceptance_length=tokens / count if count else 0.0,
        nodes_per_step=nodes / count if count else 0.0,
        boundary_hit_rate=1 - predictions.count("missed") / len(predictions) if predictions else None,
        repaired_rate=predictions.count("repaired") / len(predictions) if predictions else None,
        tokens_per_redraft=gained / redrafts if redrafts else None,
        tokens_per_second=tokens / seconds if seconds else 0.0,
        seconds=seconds,
        stage_seconds=stages,
    )


def acceptance_by_depth(steps: Iterable[StepDone]) -> list[tuple[int, int, float]]:
    """(depth, steps that reached it, share accepted) in the token tree; depth 1 is the first token below the anchor.

    A step reaches depth d when the target chose at the accepted node above and the tree continues below that node. The anchor
    is above depth 1.
    """
    reached: dict[int, list[bool]] = {}
    for step in steps:
        inner = {n.parent for n in step.nodes}
        for depth, choice in enumerate(step.choices, 1):
            if choice.node in inner:
                reached.setdefault(depth, []).append(len(step.accepted) >= depth)
    return [(depth, len(r), sum(r) / len(r)) for depth, r in sorted(reached.items())]


def tokens_gained(step: StepDone) -> int:
    """Accepted tokens that drafts behind the first brought; a drafter's lower-ranked choices are left out."""
    through = [step.nodes[n].candidates for n in step.accepted]
    return sum(bool(candidates) and 0 not in candidates for candidates in through)


def prediction(step: StepDone) -> Prediction | None:
    """What came of the selected prefixes; None where the true boundary was not seen, or no prefix was selected.

    * "repaired": the true boundary was among them, and re-drafts added tokens there;
    * "found": it was among them, but nothing was gained;
    * "missed": it was not among them;
    * "all": the whole first draft was accepted, so there was no boundary.
    """
    boundary = step.actual_boundary
    if boundary is None or not step.selected_prefixes:
        return None
    if boundary == len(step.boundary_posterior):
        return "all"
    if boundary not in step.selected_prefixes:
        return "missed"
    return "repaired" if tokens_gained(step) else "found"


def boundary_hit(step: StepDone) -> bool | None:
    """Whether the true boundary was a selected prefix; None where it was not seen, or there was none."""
    outcome = prediction(step)
    return None if outcome in (None, "all") else outcome != "missed"
