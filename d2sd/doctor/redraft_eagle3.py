"""Batched drafts of an EAGLE-3 drafter after many positions of a text: greedy chains, one batched pass per drafted token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from d2sd.doctor.texts import Text
from d2sd.models.eagle3 import Eagle3DraftModel
from d2sd.models.target import Target
from d2sd.train.eagle3 import Chains


class ChainRedrafter:
    """Drafts a greedy chain after any token of a text, as long as the text continues with the drafted tokens.

    guesses: number of tokens of a chain.
    """

    visible = 0

    def __init__(self, target: Target, model: Eagle3DraftModel, guesses: int):
        self.model, self.guesses, self.taps = model, guesses, model.target_layer_ids
        self.embedding = target.embedding if model.embedding is None else model.embedding

    @torch.inference_mode()
    def accepted(self, text: Text, anchors: Sequence[int]) -> list[int]:
        """Returns how many drafted tokens after each anchor the text continues with."""
        model = self.model
        features = text.read(self.taps).to(model.dtype)
        ids = torch.tensor([*text.ids, *[-2] * (self.guesses + 1)], device=features.device)  # −2: no token
        count = len(text.ids) - 1
        at = torch.arange(count, device=features.device)
        feature = model.project(features)
        context = model.keys_values(self._embedded(ids[1 : count + 1])[None], feature, at[None])
        rows = torch.tensor([anchors], device=features.device) - 1  # a row reads the token after it, the anchor
        chains = Chains(rows, at, context)
        state = feature[:, rows[0]]
        right = torch.ones(len(anchors), dtype=torch.bool, device=features.device)
        found = torch.zeros(len(anchors), dtype=torch.int64, device=features.device)
        for step in range(self.guesses):
            place = rows + step
            hidden = model(self._embedded(ids[place[0] + 1])[None], state, place, chains)
            best = model.token_ids[model.logits(hidden)[0].argmax(-1)]
            right = right & (best == ids[place[0] + 2])
            if not bool(right.any()):
                break
            found += right
            state = model.following(hidden)
        return found.tolist()

    def _embedded(self, ids: Tensor) -> Tensor:
        return self.embedding(ids.clamp_min(0)).to(self.model.dtype)
