"""New text for a trained target that stays what it was elsewhere, so that its drafters still fit.

Learning without forgetting (Li and Hoiem, arXiv 1606.09282): on what is known the target is held to its own former
distribution, on new text it learns, and what it should not have written it unlearns.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Qwen3ForCausalLM

from d2sd.train.target import NextToken, next_logits
from research.tiny.unlikelihood import unlikelihood


class Retention(nn.Module):
    """``keep`` × KL(former ‖ target) on known rows, cross-entropy on new ones, ``weight`` × −log(1 − p) at marked tokens."""

    def __init__(self, model: Qwen3ForCausalLM, former: Qwen3ForCausalLM, keep: float, weight: float):
        super().__init__()
        self.text, self.model, self.keep, self.weight = NextToken(model), model, keep, weight
        self.former = former.requires_grad_(False)

    def forward(self, ids: Tensor, known: Tensor, written: Tensor, marks: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """ids: (B, S) new rows; known: (B', S') rows to stay the same on; written, marks: (B'', S'') as in
        ``NextTokenUnlikelihood``."""
        loss, metrics = self.retained(ids, known)
        penalty, certain = unlikelihood(next_logits(self.model, written[:, :-1]), written, marks)
        return loss + self.weight * penalty, {**metrics, "unlearned_probability": certain}

    def retained(self, ids: Tensor, known: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """The loss but for what is unlearned."""
        loss, _ = self.text(ids)
        with torch.no_grad():
            before = next_logits(self.former, known).log_softmax(-1)
        now = next_logits(self.model, known).log_softmax(-1)
        change = (before.exp() * (before - now)).sum(-1).mean()
        return loss + self.keep * change, {"text_loss": loss.detach(), "change": change.detach()}
