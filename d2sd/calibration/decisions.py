"""Calibration of the cost-aware controller: expected against committed tokens of cost-aware steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from d2sd.trace.events import StepDone


@dataclass(frozen=True, slots=True)
class Expectations:
    """Expected and actual results of cost-aware steps; means over the steps that drafted.

    steps: number of drafting steps.
    expected, obtained: expected and actual committed tokens per step.
    expected_seconds: expected time per step.
    plain: number of steps that drafted nothing.
    looks: number of steps that tried an option that was not expected to pay.
    """

    steps: int
    expected: float
    obtained: float
    expected_seconds: float
    plain: int
    looks: int


def expectations(steps: Iterable[StepDone]) -> Expectations | None:
    """Returns expected and actual results of the steps; None if no step was cost-aware.

    Plain steps always get the one token that they expect, so they are only counted. The last step of a run may be cut off,
    so it is left out where it drafted.
    """
    decided = [s for s in steps if s.decision is not None]
    if not decided:
        return None
    drafted = [s for s in decided if _drafted(s) and s.choices and s.committed[-1].node is None]
    count = max(1, len(drafted))
    decisions = [s.decision for s in drafted if s.decision is not None]
    return Expectations(
        len(drafted),
        sum(d.tokens for d in decisions) / count,
        sum(len(s.committed) for s in drafted) / count,
        sum(d.seconds for d in decisions) / count,
        sum(not _drafted(s) for s in decided),
        sum(s.decision.looking for s in decided if s.decision is not None),
    )


def pooled(parts: Iterable[Expectations | None]) -> Expectations | None:
    """Returns expected and actual results of the steps of several sets of runs."""
    known = [p for p in parts if p is not None]
    if not known:
        return None
    steps = sum(p.steps for p in known)

    def mean(name: str) -> float:
        return sum(p.steps * float(getattr(p, name)) for p in known) / max(1, steps)

    return Expectations(
        steps,
        mean("expected"),
        mean("obtained"),
        mean("expected_seconds"),
        sum(p.plain for p in known),
        sum(p.looks for p in known),
    )


def _drafted(step: StepDone) -> bool:
    return step.first_draft is not None or len(step.nodes) > 1
