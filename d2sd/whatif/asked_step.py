"""A step of a recorded greedy run that something is asked of: what must hold before the models may answer."""

from __future__ import annotations

from collections.abc import Sequence

from d2sd.config import DecodeConfig
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.trace.differences import weights_of
from d2sd.trace.events import StepDone
from d2sd.trace.trace import Trace


def step_of(trace: Trace, config: DecodeConfig, step: int, what: str) -> StepDone:
    """Returns a step of a run at temperature 0, where the run's text says what the target accepts.

    step: its number, from 0.
    what: can be asked for, in the plural, as the sentence names it.

    Raises ``InputError`` above temperature 0, and for a step that the run does not have.
    """
    if config.temperature != 0:
        raise InputError(
            f"{what} can be asked for at temperature 0 only, where the run's text says what the target accepts; "
            "run the prompt again with temperature 0"
        )
    if not 0 <= step < len(trace.steps):
        raise InputError(f"this run has no step {step + 1}; it has {len(trace.steps)}")
    return trace.steps[step]


def text_around(trace: Trace, event: StepDone) -> tuple[list[int], list[int]]:
    """The tokens of prompt and output up to a step's anchor, that included, and those after it.

    Raises ``InputError`` where the step's anchor is not at its place in the text.
    """
    ids = [*(trace.prefill.prompt_token_ids if trace.prefill else ()), *trace.token_ids]
    start = event.anchor_position
    if ids[start : start + 1] != [event.anchor]:
        raise InputError(
            f"step {event.step + 1} of this trace does not fit its text, so nothing can be drafted again in it"
        )
    return ids[: start + 1], ids[start + 1 :]


def check_weights(engine: Engine, trace: Trace, parts: Sequence[str]) -> None:
    """Raise ``InputError`` where the trace names other weights than the engine's for one of these parts of its models."""
    for part in parts:
        theirs, ours = (weights_of([header], part) for header in (trace.header, {"parts": engine.parts}))
        if theirs and theirs != ours:
            raise InputError(
                f"this run was made with another {part.replace('_', ' ')} than the models {engine.models.name} have; load its own"
            )
