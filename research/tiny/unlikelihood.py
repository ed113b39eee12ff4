"""Training against repetition: next-token loss on text, unlikelihood on what the target repeated in its own text.

Sequence-level unlikelihood of Welleck et al., "Neural Text Generation with Unlikelihood Training"
(arXiv 1908.04319, section 5.2), on texts that were written beforehand.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Qwen3ForCausalLM

from d2sd.train.data import Responses
from d2sd.train.target import NextToken, next_logits


def repeated(ids: list[int], begin: int, size: int = 6) -> list[bool]:
    """Which tokens from ``begin`` on complete an n-gram of ``size`` tokens that ``ids`` already held before."""
    seen: set[tuple[int, ...]] = set()
    marks = [False] * len(ids)
    for end in range(size, len(ids) + 1):
        gram = tuple(ids[end - size : end])
        marks[end - 1] = end > begin and gram in seen
        seen.add(gram)
    return marks


def repeated_marks(written: Responses, size: int = 6) -> Tensor:
    """(N, S) bool: ``repeated`` of every response, False in prompts and padding."""
    marks = torch.zeros(written.ids.shape, dtype=torch.bool)
    both = zip(written.prompt_lengths.tolist(), written.lengths.tolist(), strict=True)
    for row, (begin, length) in enumerate(both):
        marks[row, :length] = torch.tensor(repeated(written.ids[row, :length].tolist(), begin, size))
    return marks


def number_marks(written: Responses, numbers: Tensor) -> Tensor:
    """(N, S) bool: numbers in responses to prompts that hold none; numbers: (vocabulary,) bool, tokens with digits."""
    at = torch.arange(written.ids.shape[1])
    here = numbers[written.ids.long()] & (at < written.lengths[:, None])
    in_prompt = at < written.prompt_lengths[:, None]
    return here & ~in_prompt & ~(here & in_prompt).any(1, keepdim=True)


def unlikelihood(logits: Tensor, written: Tensor, marks: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of −log(1 − p) over marked tokens, and their mean p.

    logits: (B, S − 1, vocabulary) of the tokens after the first; written, marks: (B, S).
    """
    token = written[:, 1:, None].long()
    # −log(1 − p) without the difference, which would lose a p near 1
    others = logits.scatter(-1, token, float("-inf")).logsumexp(-1)
    unlikely = logits.logsumexp(-1) - others
    wrong = marks[:, 1:].float()
    certain = (-torch.expm1(-unlikely.detach()) * wrong).sum() / wrong.sum().clamp_min(1)
    return (unlikely * wrong).sum() / wrong.sum().clamp_min(1), certain


class NextTokenUnlikelihood(nn.Module):
    """Mean cross-entropy of packed rows plus ``weight`` times the mean of −log(1 − p) at repeated tokens."""

    def __init__(self, model: Qwen3ForCausalLM, weight: float):
        super().__init__()
        self.text, self.model, self.weight = NextToken(model), model, weight

    def forward(self, ids: Tensor, written: Tensor, marks: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """ids: (B, S) packed rows; written: (B', S') own texts; marks: (B', S') bool, the tokens to unlearn there."""
        loss, _ = self.text(ids)
        penalty, certain = unlikelihood(next_logits(self.model, written[:, :-1]), written, marks)
        return loss + self.weight * penalty, {"text_loss": loss.detach(), "repeated_probability": certain}
