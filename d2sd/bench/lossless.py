"""Checks whether a text equals that of plain greedy decoding, exactly or within the rounding of a 16-bit dtype.

In float32 texts are compared with plain decoding id for id. In bfloat16, passes of different shape round differently, which
may turn near-ties and everything after them. There the target reads each text once more (teacher forcing), and every token
must have been its favourite or a near-tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

DEFAULT_MARGIN = 0.25
MARGIN_REASON = (
    "the margin counts in standard deviations of the logits at that position: rounding disturbs the last hidden state by "
    "a few per cent, which moves every logit by that share of their spread"
)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference between a text and that of plain decoding.

    prompt: number of the prompt.
    position: of the output token, from 0.
    expected, got: token ids; None if that text has ended.
    gap: logit of expected − logit of got after the common part, by teacher forcing; None if one text has ended.
    """

    prompt: int
    position: int
    expected: int | None
    got: int | None
    gap: float | None


def first_difference(expected: Sequence[int], got: Sequence[int]) -> int | None:
    """Returns the index of the first token that differs or is in one text only; None for equal texts."""
    for index, (a, b) in enumerate(zip(expected, got, strict=False)):
        if a != b:
            return index
    return None if len(expected) == len(got) else min(len(expected), len(got))


@torch.inference_mode()
def teacher_forced(model: Any, prompt: Sequence[int], output: Sequence[int]) -> Tensor:
    """Returns logits of ``model`` for each output token, (len(output), V) float32, from one pass over prompt and output."""
    ids = torch.tensor([[*prompt, *output[:-1]]], device=model.device)
    logits: Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    return logits[0, len(prompt) - 1 :].float()


def shortfalls(logits: Tensor, ids: Sequence[int]) -> Tensor:
    """Returns how far each token's logit is below the row's largest, in standard deviations of the row, (T,); 0 = the largest."""
    chosen = logits.gather(1, torch.tensor(ids, device=logits.device)[:, None])[:, 0]
    return (logits.amax(1) - chosen) / logits.std(1)


def divergence(
    model: Any, number: int, prompt: Sequence[int], expected: Sequence[int], got: Sequence[int]
) -> Divergence | None:
    """Returns the first divergence of two continuations of a prompt with its logit gap, or None."""
    at = first_difference(expected, got)
    if at is None:
        return None
    pair = [text[at] if at < len(text) else None for text in (expected, got)]
    gap = None
    if pair[0] is not None and pair[1] is not None:
        row = teacher_forced(model, prompt, expected[: at + 1])[-1]
        gap = float(row[pair[0]] - row[pair[1]])
    return Divergence(number, at, pair[0], pair[1], gap)
