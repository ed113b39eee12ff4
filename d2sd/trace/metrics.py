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
    """Figures of one run. Only ``tokens`` includes the token of prefill.

    tokens: number of tokens of the whole output.
    mean_acceptance_length: α, committed tokens per step, including the bonus token.
    nodes_per_step: verified tree nodes, including the anchor.
    boundary_hit_rate: share of steps whose true boundary was selected, among those that selected prefixes and had a
        rejection; None without such a step.
    repaired_rate: share of the same steps in which re-drafts also added tokens there.
    tokens_per_redraft: mean number of tokens added by a draft after the first; None without such a draft.
    stage_seconds: total seconds by stage.
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
    """Returns the totals of the steps of one run and of its prefill, in one pass over the steps."""
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
    """Returns (depth, number of steps that reached it, accepted share) by depth in the token tree.

    Depth 1 is the first token below the anchor. A step reaches depth d if the node accepted at depth d − 1 (for d = 1 the
    anchor) has children in the tree and a choice of the target.
    """
    reached: dict[int, list[bool]] = {}
    for step in steps:
        inner = {n.parent for n in step.nodes}
        for depth, choice in enumerate(step.choices, 1):
            if choice.node in inner:
                reached.setdefault(depth, []).append(len(step.accepted) >= depth)
    return [(depth, len(r), sum(r) / len(r)) for depth, r in sorted(reached.items())]


def tokens_gained(step: StepDone) -> int:
    """Returns the number of accepted tokens added by drafts after the first, without lower-ranked alternatives."""
    through = [step.nodes[n].candidates for n in step.accepted]
    return sum(bool(candidates) and 0 not in candidates for candidates in through)


def verdict(step: StepDone) -> Verdict | None:
    """Returns the outcome of the first draft; None if its true boundary is unknown or no prefixes were selected.

    * "repaired": the true boundary was a selected prefix, and re-drafts added tokens there;
    * "found": it was a selected prefix, but no tokens were added;
    * "missed": prefixes were selected, but not the true boundary;
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
    """Returns whether the true boundary was a selected prefix; None if it is unknown, or there was none."""
    outcome = verdict(step)
    return None if outcome in (None, "all") else outcome != "missed"


def closed_from(step: StepDone, method: str) -> int | None:
    """Returns the shortest prefix that was not re-drafted from because it contains a drafted end of text, although a less
    likely one was re-drafted from.

    None if there is none, or if ``method`` draws prefixes at random.
    """
    r, picked = step.boundary_posterior, step.selected_prefixes
    least = min((r[i] for i in picked if i < len(r)), default=1.0)
    return next((i for i, p in enumerate(r) if p > least and i not in picked), None) if method != RANDOM else None


def instructiveness(step: StepDone) -> tuple[int, ...]:
    """Returns a sort key for how well a step illustrates the method; empty if it does not.

    A step does if a re-draft from a predicted prefix won. Steps that both keep and gain tokens rank higher. Many tokens do not
    fit a small screen, and the last step of a text is confusing.
    """
    gained = tokens_gained(step)
    if verdict(step) != "repaired" or step.committed[-1].node is not None:
        return ()
    kept = step.actual_boundary or 0
    return (kept > 0, min(gained, 5) + min(kept, 3) - max(0, kept - 4), -abs(kept - 2))
