"""Drafts after many positions of a text at once, and computes how many of the drafted tokens are accepted.

A draft starts after a token of the text, its anchor. Drafting is greedy, and a drafted token is accepted if the text continues with
it. From the drafts, the steps of decoding at temperature 0 with the method ``dflash``, or with an EAGLE-3 chain, are computed.
``d2sd.doctor`` measures many variants of a drafter in this way. ``d2sd.replay.recorded`` replays any method, but step after step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from d2sd.calibration.replays import DraftingRun, TextWalk
from d2sd.config import DecodeConfig
from d2sd.decoding.block_drafter import attend_masked
from d2sd.decoding.verifier import Sampler
from d2sd.decoding.walked_drafter import WalkedDrafter, drafter_class
from d2sd.nets.attention import KeyValue
from d2sd.nets.drafter import DFlashDraftModel, attention_mask
from d2sd.nets.eagle3 import Chains, Eagle3DraftModel
from d2sd.nets.passes import Passes
from d2sd.nets.target import Target
from d2sd.replay.recorded import Text

Drafter = DFlashDraftModel | Eagle3DraftModel

# number of tokens of an EAGLE-3 chain: the depth of the default EAGLE-3 tree
CHAIN = DecodeConfig("eagle3").draft_depth + 1
ROWS = 1024  # maximum number of rows of a pass
GREEDY = Sampler(0.0, 0, 1.0, 0)
NO_TOKEN = -2  # padding after the end of a text


def redrafter(target: Target, model: Drafter, visible: int = 0, lag: int = 0, ahead: int = 0) -> Redrafter:
    """Returns a ``BlockRedrafter`` or ``ChainRedrafter``, depending on the drafter. Arguments: the fields of ``Redrafter``."""
    kind = BlockRedrafter if isinstance(model, DFlashDraftModel) else ChainRedrafter
    return kind(target, model, visible, lag, ahead)


@dataclass
class Redrafter:
    """Drafts after tokens of a text. A draft depends only on the text up to its anchor, and on the visible tokens after the anchor.

    target, model: the target, and the network of the drafter.
    visible: number of tokens after the anchor that a block drafter is shown; at least 1 for a VP-Drafter.
    lag: number of positions by which the drafter's features are shifted: each position gets the features of an earlier one.
    ahead: number of positions by which position ids of the block are too large; for EAGLE-3, by which the input embeddings are shifted.
    block: block size γ, the number of drafted tokens plus 1 for the anchor. For EAGLE-3, the chain counts as a block.
    """

    block = CHAIN + 1

    target: Target
    model: Any
    visible: int = 0
    lag: int = 0
    ahead: int = 0

    def draft(self, text: Text, anchors: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Drafts after each of N anchors. Returns the numbers of accepted tokens, (N,), and the beliefs, (N, drafted positions, 2).

        The two beliefs about a drafted token are its probability by the drafter's softmax, and its probability of acceptance by the
        drafter's confidence head (NaN without a head). After the first rejected token, they may be NaN.

        text: the text with the features that the drafter reads.
        anchors: positions of the anchors in the text.
        """
        raise NotImplementedError

    def accepted(self, text: Text, anchors: Sequence[int]) -> list[int]:
        """Returns the number of accepted tokens of the draft after each anchor."""
        return self.draft(text, anchors)[0].tolist()

    def steps(self, text: Text) -> TextWalk:
        """Returns the steps of decoding the text. Each step commits the visible tokens, the accepted tokens and a bonus token."""
        counts, beliefs = (column.tolist() for column in self.draft(text, text.anchors))
        anchor, end, accepted, of_steps = 0, len(text.ids) - 1 - text.start, [], []
        while anchor < end:
            of_steps.append(beliefs[anchor])
            accepted.append(min(self.visible + counts[anchor], end - anchor))
            anchor += accepted[-1] + 1
        return TextWalk(tuple(accepted), end, counts, tuple(of_steps))

    def run(self, walks: Iterable[TextWalk]) -> DraftingRun:
        """Returns the results of ``steps`` over several texts as one run."""
        return DraftingRun(tuple(walks), self.block, self.visible)

    def _features(self, text: Text) -> Tensor:
        """Returns the features that the drafter reads, shifted by ``lag`` positions, (1, T − 1, taps·hidden)."""
        features = text.features_of(self.model.target_layer_ids).to(self.model.dtype)
        return torch.cat([features[:, :1].expand(-1, self.lag, -1), features[:, : features.shape[1] - self.lag]], 1)


@dataclass
class BlockRedrafter(Redrafter):
    """Drafts with a block drafter."""

    def __post_init__(self) -> None:
        self.form, self.block = self.model.form, self.model.form.block_size
        passes = Passes("eager", "dense", 1, self.target.device)
        self.drafter = drafter_class(self.model)("first", self.model, self.target, passes, GREEDY)

    @torch.inference_mode()
    def draft(self, text: Text, anchors: Sequence[int]) -> tuple[Tensor, Tensor]:
        features = self._features(text)
        positions = torch.arange(features.shape[1], device=features.device)[None]
        context = self.model.project_context(features, positions)
        size = max(1, ROWS // self.form.rows)
        starts = range(0, len(anchors), size)
        parts = [self._draft(text, anchors[start : start + size], context) for start in starts]
        counts, beliefs = zip(*parts, strict=True)
        return torch.cat(counts), torch.cat(beliefs)

    def _draft(self, text: Text, anchors: Sequence[int], context: list[KeyValue]) -> tuple[Tensor, Tensor]:
        ids = [(text.ids[a : a + self.block] + (NO_TOKEN,) * self.block)[: self.block] for a in anchors]
        block = torch.tensor(ids, device=self.drafter.device)  # each anchor and the γ − 1 tokens after it
        hidden = self._hidden(block, anchors, context)
        rows = hidden[:, 1 - self.form.shift :]
        goal = block[:, 1 + self.visible :]
        beliefs = torch.full((*goal.shape, 2), torch.nan, device=hidden.device)
        if isinstance(self.drafter, WalkedDrafter):
            begun = block.clone()
            begun[:, 1 + self.visible :] = -1
            tokens, logs, picks, _ = self.drafter.chain(
                hidden, self.drafter.logits(rows), begun, 0.0, torch.empty(rows.shape[1], 0)
            )
            beliefs[..., 0] = logs.gather(-1, picks)[:, self.visible :, 0].exp()
            if (head := self.drafter.trained(hidden, begun, tokens)) is not None:
                beliefs[..., 1] = head[:, self.visible :]
            return (tokens[:, self.visible :] == goal).cumprod(1).sum(1), beliefs
        count = torch.zeros(len(anchors), dtype=torch.int64, device=hidden.device)
        left = torch.arange(len(anchors), device=hidden.device)
        for index in range(goal.shape[1]):  # computing logits takes longest, so rows after a rejected token are skipped
            scores = self.drafter.logits(rows[left, self.visible + index])
            best = self.drafter.target_ids(scores.argmax(-1))
            beliefs[left, index, 0] = scores.softmax(-1, dtype=torch.float32).amax(-1)
            left = left[best == goal[left, index]]
            count[left] += 1
            if not len(left):
                break
        return count, beliefs

    def _hidden(self, block: Tensor, anchors: Sequence[int], context: list[KeyValue]) -> Tensor:
        """Returns the drafter's hidden states for one block after each anchor, (anchors, rows, hidden).

        block: each anchor and the γ − 1 tokens after it, (anchors, γ).
        context: keys and values of the features, by layer.
        """
        form, rows, device = self.form, self.form.rows, self.drafter.device
        ids = torch.full((len(anchors), rows), form.mask_token, device=device)
        shown = min(1 + self.visible, rows)
        ids[:, :shown] = block[:, :shown].clamp_min(0)
        starts = torch.tensor(anchors, device=device)
        length = context[0][0].shape[2]
        kinds = list(zip(form.windows, form.causal, strict=True))
        masks = {
            kind: attention_mask(form, kinds.index(kind), starts[:, None, None], length, rows, device)[:, None]
            for kind in set(kinds)
        }

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attend_masked(self.drafter.scale, masks[kinds[layer]], query, *context[layer], key, value)

        positions = starts[:, None] + torch.arange(rows, device=device) + self.ahead
        return self.model(self.drafter.embed(ids), positions, attend)


class ChainRedrafter(Redrafter):
    """Drafts greedy chains with an EAGLE-3 drafter. Each pass drafts the next token of all chains."""

    @torch.inference_mode()
    def draft(self, text: Text, anchors: Sequence[int]) -> tuple[Tensor, Tensor]:
        model = self.model
        features = self._features(text)
        device = features.device
        ids = torch.tensor([*text.ids, *[NO_TOKEN] * (CHAIN + 1)], device=device)
        count = len(text.ids) - 1
        positions = torch.arange(count, device=device)
        feature = model.project(features)
        read = ids.roll(self.ahead)  # tokens whose embeddings are the inputs
        context = model.keys_values(self._embedded(read[1 : count + 1])[None], feature, positions[None])
        rows = torch.tensor([anchors], device=device) - 1  # row n reads token n + 1, here the anchor
        chains = Chains(rows, positions, context)
        state = feature[:, rows[0]]
        right = torch.ones(len(anchors), dtype=torch.bool, device=device)
        counts = torch.zeros(len(anchors), dtype=torch.int64, device=device)
        beliefs = torch.full((len(anchors), CHAIN, 2), torch.nan, device=device)
        for step in range(CHAIN):
            place = rows + step
            hidden = model(self._embedded(read[place[0] + 1])[None], state, place, chains)
            scores = model.logits(hidden)[0]
            beliefs[:, step, 0] = scores.softmax(-1).amax(-1)
            right = right & (model.token_ids[scores.argmax(-1)] == ids[place[0] + 2])
            if not bool(right.any()):
                break
            counts += right
            state = model.following(hidden)
        return counts, beliefs

    def _embedded(self, ids: Tensor) -> Tensor:
        return (self.model.embed_tokens or self.target.embedding)(ids.clamp_min(0)).to(self.model.dtype)
