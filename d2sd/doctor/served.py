"""A server's steps held against the same drafter here: at every place where the server drafted, how much it should have accepted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import torch

from d2sd.calibration.replays import reached
from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.doctor.changes import Drafter
from d2sd.doctor.redraft import ChainRedrafter, Redrafter
from d2sd.doctor.subject import Redrafting, taps_of
from d2sd.doctor.texts import Text, study
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.nets.drafter import DFlashDraftModel
from d2sd.nets.target import Target
from d2sd.trace.events import StepDone
from d2sd.trace.trace import Trace
from d2sd.whatif import MARGIN, MARGIN_OF_16_BITS, recorded_config

OTHER = 0.1  # share of a text's tokens above which the target did not write it greedily


@dataclass(frozen=True, slots=True)
class Place:
    """One step of a server.

    run, step: numbers from 0.
    at: tokens of the output before its first drafted one.
    drafted: tokens that the server drafted.
    server: of these, those that it accepted.
    reference: those that are accepted with the drafter here, of as many.
    cut: whether the text ended within the draft, so that more may have been accepted.
    """

    run: int
    step: int
    at: int
    drafted: int
    server: int
    reference: int
    cut: bool


@dataclass(frozen=True, slots=True)
class At:
    """Acceptance of one drafted position: the accepted share of the steps that accept all before it, None where none does."""

    server: float | None
    reference: float | None


@dataclass(frozen=True, slots=True)
class Served:
    """All steps of a server's log against the same drafter here, at the same places.

    places: one a step in which something was drafted.
    less, more: of these, those where the server accepted fewer tokens than the reference, and those where it accepted more.
    first: the first where it accepted fewer, None where there is none.
    positions: acceptance by drafted position, from 1 on.
    difference: accepted tokens a step of the server less those of the reference, with an interval over runs.
    tokens: of the outputs.
    others: of these, those that the target here would not have chosen.
    """

    places: tuple[Place, ...]
    less: int
    more: int
    first: Place | None
    positions: tuple[At, ...]
    difference: Estimate
    tokens: int
    others: int


def hold(engine: Engine, model: Drafter, traces: Sequence[Trace]) -> Iterator[tuple[list[Place], int]]:
    """Yields, run by run, every step that drafted something, and how many tokens of the output the target would not have chosen.

    model: the drafter that is served; an EAGLE-3 drafter drafts a chain. Raises ``InputError`` for a log without steps or token ids,
    and for one of another model.
    """
    target = engine.models.target
    for run, trace in enumerate(traces):
        text, steps = _text(trace, target, run)
        drafter: Redrafting
        if isinstance(model, DFlashDraftModel):
            drafter = Redrafter(target, model)
        else:
            drafter = ChainRedrafter(target, model, max(_drafted(step) for step in steps))
        with engine.lock:
            others = count_others(target, text)
            if others > OTHER * (len(text.ids) - text.start):
                raise InputError(
                    f"run {run + 1} was not written greedily by {target.name}: it would have chosen another token in "
                    f"{others} of {len(text.ids) - text.start} places; serve at temperature 0, and name the target that is served"
                )
            accepted = drafter.accepted(study(target, text, taps_of(model)), [s.anchor_position for s in steps])
        places = [
            Place(
                run,
                step.step,
                step.anchor_position + 1 - text.start,
                _drafted(step),
                _accepted(step),
                min(count, _drafted(step)),
                step.committed[-1].proposer != "target",
            )
            for step, count in zip(steps, accepted, strict=True)
        ]
        yield places, others


def _text(trace: Trace, target: Target, run: int) -> tuple[Text, list[StepDone]]:
    """Returns the text of a log, and its steps that drafted something before its last token."""
    if not trace.steps:
        raise InputError(
            f"run {run + 1} holds totals and no steps; docs/import.md says which flag makes a server log them"
        )
    if lacks := {"prompt", "tokens", "target"}.intersection(trace.missing):
        raise InputError(
            f"run {run + 1} does not hold all tokens ({', '.join(sorted(lacks))}), so nothing can be drafted again; vLLM gives "
            'them with "return_token_ids": true'
        )
    if recorded_config(trace).temperature != 0:
        raise InputError(
            f"run {run + 1} was written above temperature 0; serve at temperature 0, where a step can be drafted again"
        )
    prompt = trace.prefill.prompt_token_ids if trace.prefill else ()
    text = Text((*prompt, *trace.token_ids), len(prompt))
    if not prompt:
        raise InputError(
            f'run {run + 1} does not hold the prompt\'s ids; vLLM gives them with "return_token_ids": true'
        )
    if max(text.ids) >= target.config.vocab_size or len(text.ids) > target.max_positions:
        raise InputError(f"run {run + 1} is not of {target.name}: its tokens or its length do not fit")
    steps = [s for s in trace.steps if _drafted(s) and 1 <= s.anchor_position < len(text.ids) - 1]
    if not steps:
        raise InputError(f"nothing was drafted in run {run + 1}")
    return text, steps


def _drafted(step: StepDone) -> int:
    return len(step.first_draft.ids) if step.first_draft is not None else 0


def _accepted(step: StepDone) -> int:
    """Accepted tokens of the draft, as far as the text goes."""
    return min(len(step.accepted), _drafted(step))


@torch.inference_mode()
def count_others(target: Target, text: Text) -> int:
    """Returns how many tokens of the output surely are not the target's greedy choice."""
    ids = torch.tensor([text.ids[:-1]], device=target.device)
    hidden = target.base(
        input_ids=ids, past_key_values=target.new_cache(ids.shape[1]), use_cache=True
    ).last_hidden_state
    scores = target.logits(hidden[:, text.start - 1 :])[0].float()
    own = torch.tensor(text.ids[text.start :], device=target.device)
    gap = scores.max(-1).values - scores.gather(1, own[:, None])[:, 0]
    return int((gap > MARGIN.get(target.numbers, MARGIN_OF_16_BITS)).sum())


def summed(found: Iterable[tuple[Sequence[Place], int]], traces: Sequence[Trace]) -> Served:
    """Returns all runs together.

    found: see ``hold``.
    """
    runs, others = zip(*found, strict=True)
    places = tuple(place for run in runs for place in run)
    unit = np.array([p.run for p in places])
    rise = np.array([p.server - p.reference for p in places], float)
    difference = Resampler(len(runs)).ratio(rise, np.ones(len(places)), unit)
    sides = [[_share(*counts) for counts in _positions(places, side)] for side in ("server", "reference")]
    positions = tuple(At(*pair) for pair in zip_longest(*sides))
    less = [p for p in places if p.server < p.reference]
    more = sum(p.server > p.reference for p in places)
    tokens = sum(len(t.token_ids) for t in traces)
    return Served(places, len(less), more, less[0] if less else None, positions, difference, tokens, sum(others))


def _positions(places: Sequence[Place], side: str) -> list[tuple[int, int]]:
    """Steps that reach each position and those that accept it; after a draft's or the text's end nothing is known."""
    counts = [(getattr(p, side), p.drafted, p.cut) for p in places]
    ends = [n == most or cut for n, most, cut in counts]
    return reached(
        [n for (n, *_), end in zip(counts, ends, strict=True) if not end],
        [n for (n, *_), end in zip(counts, ends, strict=True) if end],
    )


def _share(steps: int, accepted: int) -> float | None:
    return accepted / steps if steps else None
