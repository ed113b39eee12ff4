"""Answers two questions about a step of a recorded greedy run: what a re-draft from another prefix, and what typed words would give.

The models read the text before the step again, but generate nothing. The recorded text determines which tokens of a re-draft the
target accepts. Typed words are verified by one target pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from d2sd.decoding.inspection import describe_draft
from d2sd.engine import Engine
from d2sd.errors import InputError, require
from d2sd.methods import METHODS
from d2sd.replay.outcomes import recorded_config
from d2sd.replay.recorded import Replay, check_fits
from d2sd.trace.events import Draft, StepDone
from d2sd.trace.metrics import weights_of
from d2sd.trace.text import encodable
from d2sd.trace.trace import Trace
from d2sd.tree.boundary import open_prefixes
from d2sd.tree.walk import agreed

MAX_TYPED = 400  # maximum number of characters of a typed draft


def drafted_step(trace: Trace, step: int, what: str) -> tuple[StepDone, Draft, list[int], list[int]]:
    """Returns a step, its first draft, the tokens of prompt and output up to and including its anchor, and the tokens after it.

    step: number of the step, from 0.
    what: what the caller needs the step for, a plural noun for the error message.

    Raises ``InputError`` if the run is above temperature 0, so that its text does not determine which tokens the target accepts; if
    the run has no such step; if the step drafted nothing; or if it does not match the text.
    """
    require(
        recorded_config(trace).temperature == 0,
        f"{what} need a run at temperature 0, where the text determines which tokens the target accepts; "
        "run the prompt again at temperature 0",
    )
    require(0 <= step < len(trace.steps), f"this run has no step {step + 1}; the last one is step {len(trace.steps)}")
    event = trace.steps[step]
    if event.first_draft is None or not event.first_draft.ids:
        raise InputError(f"nothing was drafted in step {step + 1}; choose another step")
    ids = [*(trace.prefill.prompt_token_ids if trace.prefill else ()), *trace.token_ids]
    start = event.anchor_position
    require(
        ids[start : start + 1] == [event.anchor],
        f"step {step + 1} of this trace does not match the text, so this step cannot be drafted again",
    )
    return event, event.first_draft, ids[: start + 1], ids[start + 1 :]


def check_same_weights(engine: Engine, trace: Trace, parts: Sequence[str]) -> None:
    """Raises ``InputError`` if one of these model parts has different weights in the trace and in the engine."""
    for part in parts:
        theirs, ours = (weights_of([header], part) for header in (trace.header, {"parts": engine.parts}))
        if theirs and theirs != ours:
            raise InputError(
                f"this run was made with another {part.replace('_', ' ')} than {engine.models.name} has; load the run's models"
            )


@dataclass(frozen=True, slots=True)
class Redraft:
    """A re-draft from one prefix of a recorded first draft, and the numbers of tokens that the target accepts.

    draft: the re-drafted tokens with their confidences.
    kept: number of accepted tokens of the prefix; fewer than ``draft.prefix`` if one of them is rejected.
    accepted: number of accepted tokens after the prefix.
    added: number of accepted tokens after the last accepted token of the first draft.
    wanted: text of the target's token at the first rejection; None if no token is rejected before the text ends.
    chosen: (length, added) of every prefix of the first draft that the run re-drafted from, in the order of the run.
    extra: by how many tokens the step would have committed more if this re-draft had been in its tree.
    same: whether the run drafted the same tokens from this prefix; None if the run did not re-draft from this prefix.
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
    """Returns a re-draft by the run's second drafter after a prefix of a step's first draft.

    This takes one target pass over the text up to the end of the re-draft, and one pass of the second drafter.

    step: number of the step, from 0.
    prefix: length of the prefix, from 0 to the length of the first draft. The prefix must not contain an end-of-text token.

    Raises ``InputError`` if the run is above temperature 0, lacks a second drafter, or lacks this step or prefix; or if the
    engine's target or second drafter has other weights than the run's.
    """
    config = engine.resolve(recorded_config(trace))
    method = METHODS[config.method]
    require(
        method.second_drafter != "none",
        f"the method of this run, {method.name}, has no second drafter; choose a run of a method with a second drafter, such as "
        f"{METHODS['d2sd'].name}",
    )
    event, first, before, goal = drafted_step(trace, step, "re-drafts")
    check_same_weights(
        engine, trace, ["target", "second_drafter" if method.second_drafter == "vp" else "first_drafter"]
    )
    start = len(before) - 1
    drafters = engine.drafters(config, start + 1)
    drafter, size = drafters.second, 1 + len(first.ids) + drafters.extension
    assert drafter is not None, "resolved settings of a method with a second drafter"
    most = len(first.ids)
    require(0 <= prefix <= most, f"the first draft has no prefix of {prefix} tokens; choose 0 to {most}")
    require(
        prefix < (usable := open_prefixes(first.ids, engine.models.target.end_ids)),
        f"token {usable} of the first draft ends the text, so nothing can follow it; choose 0 to {usable - 1}",
    )
    require(
        prefix <= size - 2,
        f"a block of {size} is full after all {prefix} tokens of the first draft: re-drafting there needs γ₂ > γ; choose 0 to {size - 2}",
    )
    replay = Replay(engine, trace, size - 1 + len(trace.token_ids) - len(goal))
    with engine.lock:
        context = replay.features[tuple(drafter.taps)][:, :start]
        drafter.extend(context, torch.arange(start, device=context.device))
        (block,) = drafter.draft(event.anchor, [first.ids[:prefix]], size, 1)

    def accepted(draft: Sequence[int], length: int) -> int:
        """Returns the number of accepted tokens of a chain: the first ``length`` tokens of the first draft, then ``draft``."""
        return agreed((*first.ids[:length], *draft), goal)

    of_first, of_redraft = accepted(first.ids, 0), accepted(block.ids, prefix)
    rejected = of_redraft < min(prefix + len(block.ids), len(goal))
    recorded = [b for b in event.branches if b.base == 0]
    return Redraft(
        draft=describe_draft(block, engine.texts, False),
        kept=min(of_redraft, prefix),
        accepted=max(0, of_redraft - prefix),
        added=max(0, of_redraft - of_first),
        wanted=engine.texts[goal[of_redraft]] if rejected else None,
        chosen=tuple((b.prefix, max(0, accepted(b.ids, b.prefix) - of_first)) for b in recorded),
        extra=max(0, min(of_redraft + 1, len(goal)) - len(event.committed)),
        same=next((b.ids == block.ids for b in recorded if b.prefix == prefix), None),
    )


# A typed draft.


@dataclass(frozen=True, slots=True)
class TypedDraft:
    """The verification of words that the user typed as a continuation after the anchor of a step.

    texts: texts of the verified tokens; at most as many as the step's first draft has.
    probabilities: the target's probability of each verified token given the previous ones, at temperature 1.
    accepted: number of leading tokens that equal the target's likeliest tokens.
    wanted: text of the target's likeliest token after the accepted ones.
    cut: number of typed tokens that were not verified, since the first draft has fewer tokens.
    """

    texts: tuple[str, ...]
    probabilities: tuple[float, ...]
    accepted: int
    wanted: str
    cut: int


@torch.inference_mode()
def verify_typed(engine: Engine, trace: Trace, step: int, words: str) -> TypedDraft:
    """Verifies words that the user typed after the anchor of a recorded step, in one target pass over the preceding text and the words.

    step: number of the step, from 0.
    words: the typed words. As far as they equal the recorded text, they get the recorded tokens. The rest is tokenised.

    Raises ``InputError`` if the step or the words cannot be verified, if the run is above temperature 0, or if the engine's
    target has other weights than the run's.
    """
    _, first, before, after = drafted_step(trace, step, "typed drafts")
    require(words.strip(), "the draft is empty; type the words that come next")
    require(len(words) <= MAX_TYPED, f"the draft has {len(words)} characters; the maximum is {MAX_TYPED}")
    check_same_weights(engine, trace, ["target"])
    pieces = [c.text for s in trace.steps[step:] for c in s.committed]
    words = spaced(pieces, encodable(words))
    count, read = agreeing(pieces, words)
    target = engine.models.target
    # typed special tokens are tokenised as plain text
    rest = target.tokenizer(words[read:], add_special_tokens=False, split_special_tokens=True)["input_ids"]
    typed = [*after[:count], *rest]
    ids = [*before, *typed[: len(first.ids)]]
    check_fits(target, ids)
    with engine.lock:
        rows = torch.tensor(ids, device=target.device)
        hidden = target.read(rows[None], target.new_cache(len(ids)))
        scores = target.logits(hidden[0, len(before) - 1 :]).float()
    verified, likeliest = ids[len(before) :], scores.argmax(-1).tolist()
    probabilities = scores[:-1].softmax(-1).gather(1, rows[len(before) :, None])[:, 0]
    accepted = agreed(verified, likeliest)
    return TypedDraft(
        texts=tuple(engine.texts[i] for i in verified),
        probabilities=tuple(probabilities.tolist()),
        accepted=accepted,
        wanted=engine.texts[likeliest[accepted]],
        cut=len(typed) - len(verified),
    )


def spaced(pieces: Sequence[str], words: str) -> str:
    """Returns the words with or without a leading space, like the recorded continuation. Users cannot see whether it begins with one.

    pieces: texts of the recorded tokens after the anchor.
    """
    first = next(filter(None, pieces), "")
    if first.startswith(" ") and not words[:1].isspace():
        return f" {words}"
    return words[1:] if words.startswith(" ") and first and not first[0].isspace() else words


def agreeing(pieces: Sequence[str], words: str) -> tuple[int, int]:
    """Returns the number of pieces with which the words begin, and the number of characters in these pieces.

    An empty piece is part of a character and counts only together with the piece that completes the character.

    pieces: texts of the recorded tokens after the anchor.
    """
    count = read = 0
    for n, piece in enumerate(pieces, 1):
        if read == len(words) or not words.startswith(piece, read):
            break
        read += len(piece)
        count = n if piece else count
    return count, read
