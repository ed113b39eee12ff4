"""A target that comes to meet its drafter: what it hardly prefers, it decides as the drafter expects.

A small target is often undecided (its favourite has .3 of the probability where a draft ends), and a third of all drafts
end at a token that the target likes almost as well as its own. Such a tie costs a step and decides nothing. So on its own
text the target learns the mean, in log space, of what it said before and of what its drafter says, at the positions that a
draft reaches, and stays what it was on known text. Where arithmetic or a repetition is at stake it stays what it was, too.
Usually the drafter alone is moved towards its target (DistillSpec, arXiv 2310.08461).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from d2sd.models.drafter import DFlashDraftModel
from d2sd.models.taps import LayerTaps
from d2sd.train.drafters import Blocks, cut_blocks, draft_blocks
from research.tiny.retention import Retention
from research.tiny.unlikelihood import unlikelihood


class Agreement(Retention):
    """``Retention`` plus ``agree`` × KL(goal ‖ target) where drafts of the target's own text are still alive."""

    numbers: Tensor

    def __init__(
        self,
        model: Qwen3ForCausalLM,
        former: Qwen3ForCausalLM,
        drafter: DFlashDraftModel,
        numbers: Tensor,
        *,
        keep: float,
        weight: float,
        agree: float,
    ):
        """numbers: (vocabulary,) bool, tokens with digits; the other weights are those of ``Retention``."""
        super().__init__(model, former, keep, weight)
        self.agree = agree
        self.drafter = drafter.eval().requires_grad_(False)
        self.register_buffer("numbers", numbers)
        self._taps = LayerTaps(model.model.layers)
        self._taps.add(drafter.target_layer_ids)

    def forward(  # type: ignore[override]
        self, ids: Tensor, known: Tensor, written: Tensor, marks: Tensor, lengths: Tensor, anchors: Tensor
    ) -> tuple[Tensor, dict[str, Any]]:
        """lengths: (B'',) of ``written``; anchors: (B'', A) where a draft begins there; the others as in ``Retention``."""
        loss, metrics = self.retained(ids, known)
        # one pass for what is unlearned and for what drafts need: the taps hold the last pass
        hidden = self.model.model(input_ids=written, use_cache=False).last_hidden_state
        logits = self.model.lm_head(hidden[:, :-1]).float()
        penalty, certain = unlikelihood(logits, written, marks)
        features = self._taps.features(self.drafter.target_layer_ids, written.device).detach()
        with torch.no_grad():
            blocks = cut_blocks(written, lengths, anchors, torch.zeros_like(anchors), self.drafter.block_size)
            drafted = draft_blocks(self.drafter, self.model, blocks, anchors, features)
            expected = self.model.lm_head(drafted).float().view(*blocks.places.shape, -1)
            alive = reached(expected.argmax(-1), blocks)
            row, block, offset = alive.nonzero(as_tuple=True)
            place = blocks.places[row, block, offset]
            draft = expected[row, block, offset].log_softmax(-1)
            before = self.former.model(input_ids=written, use_cache=False).last_hidden_state[row, place - 1]
            said = self.former.lm_head(before).float().log_softmax(-1)
            goal = self.goal(said, draft, written, row, place)
        now = logits[row, place - 1].log_softmax(-1)
        apart = (goal.exp() * (goal - now)).sum(-1).mean()
        agrees = (now.argmax(-1) == draft.argmax(-1)).float().mean()
        loss = loss + self.weight * penalty + self.agree * apart
        return loss, {**metrics, "unlearned_probability": certain, "apart": apart.detach(), "agrees": agrees}

    def goal(self, said: Tensor, draft: Tensor, written: Tensor, row: Tensor, place: Tensor) -> Tensor:
        """(N, vocabulary) log probabilities to learn: the normalised mean of ``said`` and ``draft``, or ``said`` where one
        of their favourites is a number or the drafter's would repeat itself (``repeats``)."""
        wanted, kept = draft.argmax(-1), said.argmax(-1)
        stays = self.numbers[wanted] | self.numbers[kept]
        for n in (wanted != kept).nonzero()[:, 0].tolist():
            stays[n] |= repeats(written[row[n], : place[n]].tolist(), int(wanted[n]))
        return torch.where(stays[:, None], said, ((said + draft) / 2).log_softmax(-1))


def reached(drafted: Tensor, blocks: Blocks) -> Tensor:
    """(B, A, γ) bool: the positions after the anchor up to and with the first that is drafted wrong."""
    right = (drafted == blocks.tokens) & blocks.inside
    right[..., 0] = True
    alive = torch.ones_like(right)
    alive[..., 1:] = right[..., :-1].cumprod(-1).bool()
    alive[..., 0] = False
    return alive & blocks.inside


def repeats(ids: list[int], token: int, size: int = 4) -> bool:
    """Whether ``token`` after ``ids`` doubles the last token or completes an n-gram of ``size`` tokens that they hold."""
    last = ids[1 - size :]
    doubled = ids[-1:] == [token]
    return doubled or any(ids[i : i + size - 1] == last and ids[i + size - 1] == token for i in range(len(ids) - size))
