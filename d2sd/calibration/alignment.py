"""Aligns two runs: their steps over the characters of the text, and where the texts diverge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from d2sd.trace.events import StepDone
from d2sd.trace.trace import Trace

TEXTLESS = {"tokens", "target"}  # of ``Trace.missing``


@dataclass(frozen=True, slots=True)
class Alignment:
    """Ends of the steps, in characters of the generated text.

    ends_a, ends_b: [n]: the end of step n. The first step starts after the text committed by prefill.
    differs_at: index of the first different character, or the length of the shorter text if the other one begins with it;
        None if the texts are equal.
    step_a, step_b: the steps that contain this character; None if a side has none.
    parts_at: the first step that does not end at the same index on both sides; None if all do.
    by_tokens: whether a side is an imported log without text; ends are then in tokens, and texts are not compared.
    """

    ends_a: tuple[int, ...]
    ends_b: tuple[int, ...]
    differs_at: int | None
    step_a: int | None
    step_b: int | None
    parts_at: int | None
    by_tokens: bool


def lead_of(run: Trace) -> str:
    """Returns the text committed by prefill, before the first step."""
    return "".join(c.text for c in run.prefill.committed) if run.prefill else ""


def text_of(step: StepDone) -> str:
    """Returns the text committed by a step."""
    return "".join(c.text for c in step.committed)


def align(a: Trace, b: Trace) -> Alignment:
    """Returns the alignment of two runs by the characters of their texts, which works across tokenizers; by tokens if a log
    does not hold the text."""
    by_tokens = any(TEXTLESS.intersection(run.missing) for run in (a, b))
    if by_tokens:
        counts = [
            (len(run.prefill.committed) if run.prefill else 0, *(len(step.committed) for step in run.steps))
            for run in (a, b)
        ]
        ends = [tuple(accumulate(lengths))[1:] for lengths in counts]
        return Alignment(ends[0], ends[1], None, None, None, _parting(ends[0], ends[1]), by_tokens)
    texts = [(lead_of(run), *(text_of(step) for step in run.steps)) for run in (a, b)]
    ends = [tuple(accumulate(map(len, pieces)))[1:] for pieces in texts]
    at = first_difference("".join(texts[0]), "".join(texts[1]))
    return Alignment(
        ends[0], ends[1], at, step_at(ends[0], at), step_at(ends[1], at), _parting(ends[0], ends[1]), by_tokens
    )


def _parting(ends_a: Sequence[int], ends_b: Sequence[int]) -> int | None:
    """Returns the first step with a different end."""
    if ends_a == ends_b:
        return None
    pairs = enumerate(zip(ends_a, ends_b, strict=False))
    return next((n for n, (x, y) in pairs if x != y), min(len(ends_a), len(ends_b)))


def first_difference(one: str, other: str) -> int | None:
    """Returns the length of the common prefix of two texts in characters, or None if they are equal."""
    if one == other:
        return None
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (x, y) in pairs if x != y), min(len(one), len(other)))


def step_at(ends: Sequence[int], character: int | None) -> int | None:
    """Returns the step that contains a character, given the steps' ends."""
    if character is None:
        return None
    return next((n for n, end in enumerate(ends) if character < end), None)
