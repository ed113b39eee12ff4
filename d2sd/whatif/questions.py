"""Computes what the second drafter would have added from another prefix in one step of a recorded greedy run.

The step's context is processed again and the second drafter drafts from any prefix of the recorded first draft. Nothing is
generated: the recorded text determines which tokens the target accepts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch

from d2sd.config import DecodeConfig
from d2sd.decoding.inspection import describe_draft
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.methods import METHODS
from d2sd.trace.events import Draft, StepDone
from d2sd.trace.trace import Trace
from d2sd.tree.boundary import open_prefixes
from d2sd.whatif import Replay, recorded_config
from d2sd.whatif.asked_step import check_weights, step_of, text_around


@dataclass(frozen=True, slots=True)
class Redraft:
    """A re-draft from one prefix of a recorded first draft, and the tokens of it that the target accepts.

    draft: its tokens with their confidences.
    kept: number of accepted tokens of the prefix; fewer than ``draft.prefix`` if one of them is rejected.
    accepted: number of accepted tokens of the re-draft after them.
    added: number of these beyond the accepted tokens of the first draft.
    wanted: text of the target's token at the first rejection; None if no token is rejected, or the text ends before.
    chosen: (prefix, added) for every prefix of the first draft that the run re-drafted from, in its order.
    extra: number of additional tokens that the step would have committed with this re-draft in its tree.
    same: whether the run drafted the same tokens from this prefix; None if it did not re-draft from it.
    """

    draft: Draft
    kept: int
    accepted: int
    added: int
    wanted: str | None
    chosen: tuple[tuple[int, int], ...]
    extra: int
    same: bool | None


@torch.inference_mode()
def redraft(engine: Engine, trace: Trace, step: int, prefix: int) -> Redraft:
    """Returns a re-draft of the run's second drafter from the first ``prefix`` tokens of a step's first draft.

    It takes one target pass over prompt and text up to this step, and one pass of the second drafter.

    step: number of the step, from 0.
    prefix: from 0 to the length of the first draft; the text must not end within the prefix.

    Raises ``InputError`` for numbers outside this run, for runs without a second drafter or above temperature 0, and if the
    engine has other models than those of the run.
    """
    config = engine.resolve(replace(recorded_config(trace), inspect=False, backend="auto"))
    first, event = _first_draft(trace, config, step)
    second = "second_drafter" if METHODS[config.method].second_drafter == "vp" else "first_drafter"
    check_weights(engine, trace, ["target", second])
    start = event.anchor_position
    _, goal = text_around(trace, event)
    proposer = engine.proposer(config, start + 1)
    drafter, size = proposer.second, 1 + len(first.ids) + proposer.extension
    assert drafter is not None, "resolved settings of a method with a second drafter"
    _check_prefix(first.ids, prefix, size, engine.models.target.end_ids)
    replay = Replay(engine, trace, size - 1 + len(trace.token_ids) - len(goal))
    with engine.lock:
        context = replay.features[tuple(drafter.taps)][:, :start]
        drafter.extend(context, torch.arange(start, device=context.device))
        (block,) = drafter.draft(event.anchor, [first.ids[:prefix]], size, 1)

    def right(draft: Sequence[int], given: int) -> int:
        """Tokens that the target accepts of so many of the first draft and those of another one after them."""
        chain = (*first.ids[:given], *draft)
        return next(
            (n for n, (a, b) in enumerate(zip(chain, goal, strict=False)) if a != b), min(len(chain), len(goal))
        )

    own, found = right(first.ids, 0), right(block.ids, prefix)
    rejected = found < min(prefix + len(block.ids), len(goal))
    recorded = [b for b in event.branches if b.base == 0]
    there = next((b for b in recorded if b.prefix == prefix), None)
    return Redraft(
        draft=describe_draft(block, engine.texts, False),
        kept=min(found, prefix),
        accepted=max(0, found - prefix),
        added=max(0, found - own),
        wanted=engine.texts[goal[found]] if rejected else None,
        chosen=tuple((b.prefix, max(0, right(b.ids, b.prefix) - own)) for b in recorded),
        extra=max(0, min(found + 1, len(goal)) - len(event.committed)),
        same=None if there is None else there.ids == block.ids,
    )


def _first_draft(trace: Trace, config: DecodeConfig, step: int) -> tuple[Draft, StepDone]:
    """The first draft of a step that a second drafter can re-draft, and the step; raises ``InputError`` where there is none."""
    if METHODS[config.method].second_drafter == "none":
        raise InputError(
            f"the method of this run, {METHODS[config.method].name}, has no second drafter; re-drafts can be asked for in a run "
            f"of {METHODS['d2sd'].name}"
        )
    event = step_of(trace, config, step, "re-drafts")
    if event.first_draft is None or not event.first_draft.ids:
        raise InputError(
            f"nothing was drafted in step {step + 1}, so there is nothing to re-draft; choose another step"
        )
    return event.first_draft, event


def _check_prefix(ids: Sequence[int], prefix: int, size: int, end_ids: Collection[int]) -> None:
    """Raise ``InputError`` where a block of ``size`` cannot go on after so many of these tokens."""
    if not 0 <= prefix <= len(ids):
        raise InputError(f"the first draft has no prefix of {prefix} tokens; choose 0 to {len(ids)}")
    if prefix >= (usable := open_prefixes(ids, end_ids)):
        raise InputError(
            f"the first draft ends the text at its token {usable}, so nothing can follow it; choose 0 to {usable - 1}"
        )
    if prefix > size - 2:
        raise InputError(
            f"a block of {size} has no room after all {prefix} tokens of the first draft: that needs γ₂ > γ; choose 0 to {size - 2}"
        )
