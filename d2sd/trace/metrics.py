"""Metrics of a step and of a run: acceptance, verdicts, speed, stage shares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

from d2sd.trace.events import PrefillDone, StageSeconds, StepDone

Verdict = Literal["repaired", "found", "missed", "all"]
RANDOM = "random_prefix"  # the method that re-drafts from prefixes drawn at random


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
    verdicts: list[Verdict] = []
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
        if (outcome := verdict(step)) not in (None, "all"):
            verdicts.append(outcome)
    return Totals(
        tokens=tokens + (len(prefill.committed) if prefill else 0),
        steps=count,
        mean_acceptance_length=tokens / count if count else 0.0,
        nodes_per_step=nodes / count if count else 0.0,
        boundary_hit_rate=1 - verdicts.count("missed") / len(verdicts) if verdicts else None,
        repaired_rate=verdicts.count("repaired") / len(verdicts) if verdicts else None,
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


def verdict(step: StepDone) -> Verdict | None:
    """What came of the first draft; None where its true boundary was not seen, or was not predicted.

    * "repaired": the true boundary was a selected prefix, and re-drafts added tokens there;
    * "found": it was a selected prefix, but nothing was gained;
    * "missed": prefixes were selected, and it was none of them;
    * "all": the whole first draft was accepted, so there was no boundary.
    """
    boundary = step.actual_boundary
    if boundary is None or step.first_draft is None:
        return None
    if boundary == len(step.first_draft.ids):
        return "all"
    if boundary in step.selected_prefixes:
        return "repaired" if tokens_gained(step) else "found"
    return "missed" if step.selected_prefixes else None


def boundary_hit(step: StepDone) -> bool | None:
    """Whether the true boundary was a selected prefix; None where it was not seen, or there was none."""
    outcome = verdict(step)
    return None if outcome in (None, "all") else outcome != "missed"


def closed_from(step: StepDone, method: str) -> int | None:
    """The first place that was not re-drafted from although a less likely one was: a drafted end of text stands before it.

    None where there is none, or where ``method`` draws the places at random.
    """
    r, picked = step.boundary_posterior, step.selected_prefixes
    least = min((r[i] for i in picked if i < len(r)), default=1.0)
    return next((i for i, p in enumerate(r) if p > least and i not in picked), None) if method != RANDOM else None


def instructiveness(step: StepDone) -> tuple[int, ...]:
    """How well a step shows the idea, to be compared; empty where it does not.

    It shows it where a re-draft won from a predicted prefix. Some tokens kept and some gained show more than one kind alone;
    many run off a small screen. The end of a text would confuse.
    """
    gained = tokens_gained(step)
    if verdict(step) != "repaired" or step.committed[-1].node is not None:
        return ()
    kept = step.actual_boundary or 0
    return (kept > 0, min(gained, 5) + min(kept, 3) - max(0, kept - 4), -abs(kept - 2))
