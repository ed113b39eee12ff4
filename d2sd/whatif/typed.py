"""Be the drafter: what the target makes of tokens that a reader typed in the place of a step's draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.trace.trace import Trace
from d2sd.whatif import recorded_config
from d2sd.whatif.asked_step import check_weights, step_of, text_around

MAX_TYPED = 400  # characters


@dataclass(frozen=True, slots=True)
class TypedDraft:
    """A reader's tokens after the anchor of a step, verified as a draft is.

    texts: of the tokens that were verified, at most as many as the step's drafter drafted.
    probabilities: the target's own of each, at temperature 1, given those before it.
    accepted: how many of them are the target's favourites, one after the other from the first on.
    wanted: the target's favourite after those, as text: in place of the first rejected one, or behind all of them.
    cut: tokens behind the last that a block has room for; they were not verified.
    """

    texts: tuple[str, ...]
    probabilities: tuple[float, ...]
    accepted: int
    wanted: str
    cut: int


@torch.inference_mode()
def verify_typed(engine: Engine, trace: Trace, step: int, words: str) -> TypedDraft:
    """Verify a reader's words after the anchor of a recorded step, in one target pass over the text up to there and them.

    step: its number, from 0.
    words: what comes next. As far as they agree with the recorded text they are cut into its tokens, behind that by the tokenizer.

    Raises ``InputError`` for a step or words that cannot be verified, above temperature 0, and where the engine has another target
    than the run was made with.
    """
    config = replace(recorded_config(trace), inspect=False, backend="auto")
    event = step_of(trace, config, step, "tokens of one's own")
    room = 0 if event.first_draft is None else len(event.first_draft.ids)
    if not room:
        raise InputError(
            f"nothing was drafted in step {step + 1}, so there is no draft to compare with; choose another step"
        )
    if not words.strip():
        raise InputError("nothing was typed; type the words that come next")
    if len(words) > MAX_TYPED:
        raise InputError(f"the draft has {len(words)} characters; at most {MAX_TYPED} are read")
    check_weights(engine, trace, ["target"])
    before, after = text_around(trace, event)
    pieces = [c.text for s in trace.steps[step:] for c in s.committed]
    words = spaced(pieces, words.encode("utf-8", "replace").decode())
    count, read = agreeing(pieces, words)
    target = engine.models.target
    # words that read like a special token are not one
    rest = target.tokenizer(words[read:], add_special_tokens=False, split_special_tokens=True)["input_ids"]
    typed = [*after[:count], *rest]
    ids = [*before, *typed[:room]]
    if max(ids) >= target.config.vocab_size or len(ids) > target.max_positions:
        raise InputError(f"this run is not of the model {engine.models.name}: its tokens or its length do not fit")
    with engine.lock:
        rows = torch.tensor(ids, device=target.device)
        hidden = target.forward(
            rows, torch.arange(len(ids), device=target.device), target.new_cache(len(ids)), None, None
        )
        scores = target.logits(hidden[len(before) - 1 :]).float()
    offered = ids[len(before) :]
    favourites = scores.argmax(-1).tolist()
    chances = scores[:-1].softmax(-1).gather(1, rows[len(before) :, None])[:, 0].tolist()
    accepted = next((n for n, (a, b) in enumerate(zip(offered, favourites, strict=False)) if a != b), len(offered))
    return TypedDraft(
        texts=tuple(engine.texts[i] for i in offered),
        probabilities=tuple(chances),
        accepted=accepted,
        wanted=engine.texts[favourites[accepted]],
        cut=len(typed) - len(offered),
    )


def spaced(pieces: Sequence[str], words: str) -> str:
    """Words with a space before them, or none, as the text has that they go on in: nobody can see which it is."""
    first = next(filter(None, pieces), "")
    if first.startswith(" ") and not words[:1].isspace():
        return f" {words}"
    return words[1:] if words.startswith(" ") and first and not first[0].isspace() else words


def agreeing(pieces: Sequence[str], words: str) -> tuple[int, int]:
    """How many of these pieces the words begin with, and the characters of those.

    A piece without text is a part of a character; it counts with the piece that completes it.
    """
    count = read = 0
    for n, piece in enumerate(pieces, 1):
        if read == len(words) or not words.startswith(piece, read):
            break
        read += len(piece)
        count = n if piece else count
    return count, read
