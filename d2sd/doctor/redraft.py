"""Batched drafts after many positions of a written text; a drafted token is accepted if the text continues with it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from d2sd.decoding.block_drafter import attend_masked
from d2sd.decoding.verifier import Sampler
from d2sd.decoding.walked_drafter import WalkedDrafter, make_drafter
from d2sd.doctor.texts import Text
from d2sd.nets.attention import KeyValue
from d2sd.nets.drafter import DFlashDraftModel, attention_mask
from d2sd.nets.eagle3 import Eagle3DraftModel
from d2sd.nets.passes import Passes
from d2sd.nets.target import Target
from d2sd.train.eagle3 import Chains

ROWS = 1024  # of a pass
GREEDY = Sampler(0.0, 0, 1.0, 0)


class Redrafter:
    """A block drafter that drafts greedily after any token of a text, each draft from the text before it alone.

    visible: number of tokens after the anchor that it is given, as a VP-Drafter is.
    """

    def __init__(self, target: Target, model: DFlashDraftModel, visible: int = 0):
        self.model, self.form, self.visible = model, model.form, visible
        passes = Passes("eager", "dense", 1, target.device)
        self.drafter = make_drafter("first", model, target, passes, GREEDY)

    @torch.inference_mode()
    def context(self, text: Text) -> list[KeyValue]:
        """Returns keys and values of the text, by layer; they do not depend on the mask token and the block."""
        features = text.read(self.form.taps).to(self.drafter.dtype)
        positions = torch.arange(features.shape[1], device=features.device)[None]
        return self.model.project_context(features, positions)

    @torch.inference_mode()
    def accepted(self, text: Text, anchors: Sequence[int], context: list[KeyValue] | None = None) -> list[int]:
        """Returns how many drafted tokens after each anchor the text continues with.

        context: the text's, where it is at hand.
        """
        context = context or self.context(text)
        size = max(1, ROWS // self.form.rows)
        found: list[int] = []
        for begin in range(0, len(anchors), size):
            found += self._accepted(text, anchors[begin : begin + size], context)
        return found

    def _accepted(self, text: Text, anchors: Sequence[int], context: list[KeyValue]) -> list[int]:
        wanted = self._wanted(text, anchors)
        hidden = self._hidden(wanted, anchors, context)
        rows = hidden[:, 1 - self.form.shift :][:, self.visible :]
        goal = wanted[:, 1 + self.visible :]
        if isinstance(self.drafter, WalkedDrafter):
            given = wanted.clone()
            given[:, 1 + self.visible :] = -1
            logits = self.drafter.logits(hidden[:, 1 - self.form.shift :])
            tokens = self.drafter.chain(hidden, logits, given, 0.0, torch.empty(len(goal[0]) + self.visible, 0))[0]
            return (tokens[:, self.visible :] == goal).cumprod(1).sum(1).tolist()
        count = torch.zeros(len(anchors), dtype=torch.int64, device=hidden.device)
        left = torch.arange(len(anchors), device=hidden.device)
        for at in range(goal.shape[1]):  # rows behind a rejected token need no logits, which cost most
            best = self.drafter.own_ids(self.drafter.logits(rows[left, at]).argmax(-1))
            left = left[best == goal[left, at]]
            count[left] += 1
            if not len(left):
                break
        return count.tolist()

    @torch.inference_mode()
    def trained(self, text: Text, anchors: Sequence[int]) -> Tensor:
        """Returns the confidence head's output for the first drafted token after each anchor, (A,)."""
        assert self.model.confidence_head is not None
        wanted = self._wanted(text, anchors)
        hidden = self._hidden(wanted, anchors, self.context(text))[:, 1 - self.form.shift]
        markov = self.model.markov_head if self.form.confidence == "markov" else None
        return self.model.confidence_head(hidden, None if markov is None else markov.markov_w1(wanted[:, 0]))

    def _wanted(self, text: Text, anchors: Sequence[int]) -> Tensor:
        """Returns anchors and the tokens after them, (A, γ); −2, which is no token id, after the end."""
        size = self.form.block_size
        ids = [(text.ids[at : at + size] + (-2,) * size)[:size] for at in anchors]
        return torch.tensor(ids, device=self.drafter.device)

    def _hidden(self, wanted: Tensor, anchors: Sequence[int], context: list[KeyValue]) -> Tensor:
        """Hidden states (A, R, hidden) of one block after every anchor."""
        form, rows, device = self.form, self.form.rows, self.drafter.device
        ids = torch.full((len(anchors), rows), form.mask_token, device=device)
        shown = min(1 + self.visible, rows)
        ids[:, :shown] = wanted[:, :shown].clamp_min(0)
        starts = torch.tensor(anchors, device=device)
        length = context[0][0].shape[2]
        kinds = list(zip(form.windows, form.causal, strict=True))
        masks: dict[tuple[int | None, bool], Tensor] = {}
        for layer, kind in enumerate(kinds):
            if kind not in masks:
                masks[kind] = attention_mask(form, layer, starts[:, None, None], length, rows, device)[:, None]
        ways = [partial(attend_masked, self.drafter.scale, masks[kind]) for kind in kinds]
        positions = starts[:, None] + torch.arange(rows, device=device)
        return self.model(self.drafter.embed(ids), positions, context, ways)


# Batched drafts of an EAGLE-3 drafter after many positions of a text: greedy chains, one batched pass per drafted token.


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
