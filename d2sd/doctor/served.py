"""Compares a server's steps with the same drafter run locally: how many drafted tokens should the server have accepted?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from d2sd.calibration.replays import reached
from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.decoding.replay import Text, read_recorded, recorded_text
from d2sd.doctor.redraft import Drafter, redrafter
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.nets.target import Target
from d2sd.trace.events import StepDone
from d2sd.trace.trace import Trace

MOST_OTHERS = 0.1  # largest share of tokens that the target would not choose, for a text to count as greedy


@dataclass(frozen=True, slots=True)
class ServedStep:
    """One step of a server.

    run, step: index of the run, and of the step in its run.
    at: number of output tokens before the first drafted one.
    drafted: number of tokens that the server drafted.
    server: number of drafted tokens that the server accepted.
    reference: number of tokens that would be accepted if the local drafter drafted ``drafted`` tokens at the same place.
    cut: whether the text ended within the draft, so that more tokens might have been accepted.
    """

    run: int
    step: int
    at: int
    drafted: int
    server: int
    reference: int
    cut: bool


@dataclass(frozen=True, slots=True)
class PositionShares:
    """Acceptance of one drafted position, among the steps that accept all earlier ones; None if there are no such steps."""

    server: float | None
    reference: float | None


@dataclass(frozen=True, slots=True)
class ServedComparison:
    """A server's steps compared with the local drafter (the reference) at the same places of the text.

    places: the steps with drafted tokens.
    less, more: number of places where the server accepted fewer, or more, tokens than the reference.
    first: the first place where the server accepted fewer tokens; None if there is none.
    positions: acceptance by drafted position, from 1 on.
    difference: accepted tokens per step, server − reference, with an interval over runs.
    tokens: number of output tokens.
    others: number of output tokens that the local target would not have chosen.
    """

    places: tuple[ServedStep, ...]
    less: int
    more: int
    first: ServedStep | None
    positions: tuple[PositionShares, ...]
    difference: Estimate
    tokens: int
    others: int


def redraft_served(engine: Engine, model: Drafter, traces: Sequence[Trace]) -> Iterator[tuple[list[ServedStep], int]]:
    """Yields for each run the steps with drafted tokens, and the number of output tokens that the target would not have chosen.

    model: the served drafter; an EAGLE-3 drafter drafts a chain. Raises ``InputError`` if a log
    lacks steps or token ids, or was not generated greedily by this target.
    """
    target = engine.models.target
    for run, trace in enumerate(traces):
        try:
            text, steps = _text(trace, target)
        except InputError as error:
            raise InputError(f"run {run + 1}: {error}") from None
        drafter = redrafter(target, model, chain=max(map(_drafted, steps)))
        with engine.lock:
            text, others = read_recorded(target, text, model.target_layer_ids)
            if len(others) > MOST_OTHERS * (len(text.ids) - text.start):
                raise InputError(
                    f"run {run + 1} was not generated greedily by {target.name}, which would have chosen another token at "
                    f"{len(others)} of {len(text.ids) - text.start} positions; serve at temperature 0, and name the served target"
                )
            accepted = drafter.accepted(text, [s.anchor_position for s in steps])
        places = []
        for step, count in zip(steps, accepted, strict=True):
            at, drafted = step.anchor_position + 1 - text.start, _drafted(step)
            server, cut = min(len(step.accepted), drafted), step.committed[-1].proposer != "target"
            places.append(ServedStep(run, step.step, at, drafted, server, min(count, drafted), cut))
        yield places, len(others)


def _text(trace: Trace, target: Target) -> tuple[Text, list[StepDone]]:
    """Returns the text of a log, and the steps with drafted tokens before the text's last token."""
    if not trace.steps:
        raise InputError("the log has totals but no steps; docs/import.md says which flag makes a server log steps")
    text = recorded_text(trace, target)
    steps = [s for s in trace.steps if _drafted(s) and 1 <= s.anchor_position < len(text.ids) - 1]
    if not steps:
        raise InputError("the log has no drafted tokens")
    return text, steps


def _drafted(step: StepDone) -> int:
    return len(step.first_draft.ids) if step.first_draft is not None else 0


def compare_served(found: Iterable[tuple[Sequence[ServedStep], int]], traces: Sequence[Trace]) -> ServedComparison:
    """Returns the comparison over all runs.

    found: see ``redraft_served``.
    """
    runs, others = zip(*found, strict=True)
    steps = tuple(step for run in runs for step in run)
    unit = np.array([step.run for step in steps])
    rise = np.array([step.server - step.reference for step in steps], float)
    less = [step for step in steps if step.server < step.reference]
    sides = (_shares([getattr(step, side) for step in steps], steps) for side in ("server", "reference"))
    return ServedComparison(
        places=steps,
        less=len(less),
        more=sum(step.server > step.reference for step in steps),
        first=less[0] if less else None,
        positions=tuple(PositionShares(*pair) for pair in zip_longest(*sides)),
        difference=Resampler(len(runs)).ratio(rise, np.ones(len(steps)), unit),
        tokens=sum(len(t.token_ids) for t in traces),
        others=sum(others),
    )


def _shares(accepted: Sequence[int], steps: Sequence[ServedStep]) -> list[float | None]:
    """Returns the accepted share by position. Positions after the end of a draft or of the text do not count."""
    whole: list[int] = []
    ended: list[int] = []
    for count, step in zip(accepted, steps, strict=True):
        (ended if step.cut or count == step.drafted else whole).append(count)
    return [further / there if there else None for there, further in reached(whole, ended)]
