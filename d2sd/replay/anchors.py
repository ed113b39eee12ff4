"""Drafts after every position of a text at once, and computes the acceptance.

Drafting is greedy, and a drafted token is accepted if the text continues with it. The steps over a text are the same as in decoding
at temperature 0, with the method ``dflash`` or with an EAGLE-3 chain. Many readings of one drafter are measured in this way
(``d2sd.doctor``); ``d2sd.replay.recorded`` replays any method, one step after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from math import isnan, nan
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from d2sd.calibration.replays import reached
from d2sd.calibration.resampling import Estimate, Ratio, Resampler, wilson
from d2sd.config import DecodeConfig
from d2sd.decoding.block_drafter import attend_masked
from d2sd.decoding.verifier import Sampler
from d2sd.decoding.walked_drafter import WalkedDrafter, make_drafter
from d2sd.nets.attention import KeyValue
from d2sd.nets.drafter import DFlashDraftModel, attention_mask
from d2sd.nets.eagle3 import Chains, Eagle3DraftModel
from d2sd.nets.passes import Passes
from d2sd.nets.target import Target
from d2sd.replay.recorded import Text

Drafter = DFlashDraftModel | Eagle3DraftModel

CHAIN = DecodeConfig("eagle3").draft_depth + 1  # tokens of an EAGLE-3 chain; as deep as the default EAGLE-3 tree
ROWS = 1024  # rows per pass
GREEDY = Sampler(0.0, 0, 1.0, 0)
NO_TOKEN = -2  # padding after the end of a text


def redrafter(target: Target, model: Drafter, visible: int = 0, lag: int = 0, ahead: int = 0) -> Redrafter:
    """Returns an object that drafts over texts with a drafter of either kind; arguments as for ``Redrafter``."""
    kind = BlockRedrafter if isinstance(model, DFlashDraftModel) else ChainRedrafter
    return kind(target, model, visible, lag, ahead)


@dataclass
class Redrafter:
    """Drafts after any token of a text. Each draft depends only on the text before it.

    visible: number of tokens after the anchor that a block drafter is shown; at least 1 for a VP-Drafter.
    lag, ahead: displacement of the inputs (see ``Variant``).
    block: γ, the number of drafted tokens per step, plus 1 for the anchor; of an EAGLE-3 chain by default.
    """

    block = CHAIN + 1

    target: Target
    model: Any
    visible: int = 0
    lag: int = 0
    ahead: int = 0

    def draft(self, text: Text, anchors: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Returns the number of accepted tokens after each anchor, (N,), and what the drafter believes, (N, positions, 2).

        Beliefs are the probability of the drafted token and the confidence head's probability, up to the first rejected token. The
        second is NaN without this head.
        """
        raise NotImplementedError

    def accepted(self, text: Text, anchors: Sequence[int]) -> list[int]:
        """Returns the number of accepted tokens after each anchor."""
        counts: list[int] = self.draft(text, anchors)[0].tolist()
        return counts

    def walk(self, text: Text) -> TextWalk:
        """Returns the steps of decoding. Each step commits the visible tokens, the accepted tokens and the bonus token."""
        counts, sure = (found.tolist() for found in self.draft(text, text.anchors))
        at, end, accepted, beliefs = 0, len(text.ids) - 1 - text.start, [], []
        while at < end:
            beliefs.append(sure[at])
            accepted.append(min(self.visible + counts[at], end - at))
            at += accepted[-1] + 1
        return TextWalk(tuple(accepted), end, counts, tuple(beliefs))

    def run(self, walks: Iterable[TextWalk]) -> DraftingRun:
        """Returns the run with these steps."""
        return DraftingRun(tuple(walks), self.block, self.visible)

    def _features(self, text: Text) -> Tensor:
        """Returns the features that the drafter reads, (1, T − 1, taps·hidden), late by ``lag`` positions."""
        features = text.features_of(self.model.target_layer_ids).to(self.model.dtype)
        return torch.cat([features[:, :1].expand(-1, self.lag, -1), features[:, : features.shape[1] - self.lag]], 1)


@dataclass
class BlockRedrafter(Redrafter):
    """Drafts blocks."""

    def __post_init__(self) -> None:
        self.form, self.block = self.model.form, self.model.form.block_size
        passes = Passes("eager", "dense", 1, self.target.device)
        self.drafter = make_drafter("first", self.model, self.target, passes, GREEDY)

    @torch.inference_mode()
    def draft(self, text: Text, anchors: Sequence[int]) -> tuple[Tensor, Tensor]:
        features = self._features(text)
        positions = torch.arange(features.shape[1], device=features.device)[None]
        context = self.model.project_context(features, positions)
        size = max(1, ROWS // self.form.rows)
        parts = [self._draft(text, anchors[at : at + size], context) for at in range(0, len(anchors), size)]
        counts, beliefs = zip(*parts, strict=True)
        return torch.cat(counts), torch.cat(beliefs)

    def _draft(self, text: Text, anchors: Sequence[int], context: list[KeyValue]) -> tuple[Tensor, Tensor]:
        ids = [(text.ids[at : at + self.block] + (NO_TOKEN,) * self.block)[: self.block] for at in anchors]
        block = torch.tensor(ids, device=self.drafter.device)  # each anchor and the γ − 1 tokens after it
        hidden = self._hidden(block, anchors, context)
        rows = hidden[:, 1 - self.form.shift :]
        goal = block[:, 1 + self.visible :]
        sure = torch.full((*goal.shape, 2), torch.nan, device=hidden.device)
        if isinstance(self.drafter, WalkedDrafter):
            begun = block.clone()
            begun[:, 1 + self.visible :] = -1
            noise = torch.empty(rows.shape[1], 0)
            tokens, logs, picks, _ = self.drafter.chain(hidden, self.drafter.logits(rows), begun, 0.0, noise)
            sure[..., 0] = logs.gather(-1, picks)[:, self.visible :, 0].exp()
            if (head := self.drafter.trained(hidden, begun, tokens)) is not None:
                sure[..., 1] = head[:, self.visible :]
            return (tokens[:, self.visible :] == goal).cumprod(1).sum(1), sure
        count = torch.zeros(len(anchors), dtype=torch.int64, device=hidden.device)
        left = torch.arange(len(anchors), device=hidden.device)
        for at in range(goal.shape[1]):  # computing logits takes longest, so rows after a rejected token are skipped
            scores = self.drafter.logits(rows[left, self.visible + at])
            best = self.drafter.own_ids(scores.argmax(-1))
            sure[left, at, 0] = scores.softmax(-1, dtype=torch.float32).amax(-1)
            left = left[best == goal[left, at]]
            count[left] += 1
            if not len(left):
                break
        return count, sure

    def _hidden(self, block: Tensor, anchors: Sequence[int], context: list[KeyValue]) -> Tensor:
        """Returns the hidden states of one block after every anchor, (anchors, rows, hidden)."""
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
        attends = [partial(attend_masked, self.drafter.scale, masks[kind]) for kind in kinds]
        positions = starts[:, None] + torch.arange(rows, device=device) + self.ahead
        return self.model(self.drafter.embed(ids), positions, context, attends)


class ChainRedrafter(Redrafter):
    """Drafts a greedy EAGLE-3 chain. Every pass drafts the next token of all chains."""

    @torch.inference_mode()
    def draft(self, text: Text, anchors: Sequence[int]) -> tuple[Tensor, Tensor]:
        model = self.model
        features = self._features(text)
        ids = torch.tensor([*text.ids, *[NO_TOKEN] * (CHAIN + 1)], device=features.device)
        count = len(text.ids) - 1
        at = torch.arange(count, device=features.device)
        feature = model.project(features)
        read = ids.roll(self.ahead)  # tokens whose embeddings are the inputs
        context = model.keys_values(self._embedded(read[1 : count + 1])[None], feature, at[None])
        rows = torch.tensor([anchors], device=features.device) - 1  # row n reads token n + 1, here the anchor
        chains = Chains(rows, at, context)
        state = feature[:, rows[0]]
        right = torch.ones(len(anchors), dtype=torch.bool, device=features.device)
        counts = torch.zeros(len(anchors), dtype=torch.int64, device=features.device)
        sure = torch.full((len(anchors), CHAIN, 2), torch.nan, device=features.device)
        for step in range(CHAIN):
            place = rows + step
            hidden = model(self._embedded(read[place[0] + 1])[None], state, place, chains)
            scores = model.logits(hidden)[0]
            sure[:, step, 0] = scores.softmax(-1).amax(-1)
            right = right & (model.token_ids[scores.argmax(-1)] == ids[place[0] + 2])
            if not bool(right.any()):
                break
            counts += right
            state = model.following(hidden)
        return counts, sure

    def _embedded(self, ids: Tensor) -> Tensor:
        return (self.model.embed_tokens or self.target.embedding)(ids.clamp_min(0)).to(self.model.dtype)


# The steps over texts: tokens per step, acceptance by position, and its shape.

Counts = Sequence[int]  # number of accepted tokens by anchor
Shape = Literal["low", "cliff", "smooth", "unclear"]
LOW = 0.6  # acceptance at position 1 that trained drafters usually exceed
FEWEST_STEPS = 20  # steps that must reach a position for it to count
FALL = 0.6  # acceptance ÷ acceptance of the position before, below which there is a cliff
STRICT = 3.0  # half-width of the interval in standard deviations; wide, since every position is tested


@dataclass(frozen=True, slots=True)
class TextWalk:
    """The steps of decoding over one text.

    accepted: number of accepted tokens of each step, including visible ones; the text's end may cut the last step.
    tokens: number of generated tokens.
    by_anchor: number of accepted tokens of a draft from each anchor of the text, even if no step starts at this anchor.
    beliefs: for each step, what the drafter believed by position (see ``Redrafter.draft``).
    """

    accepted: tuple[int, ...]
    tokens: int
    by_anchor: Counts = ()
    beliefs: tuple[list[tuple[float, float]], ...] = ()


@dataclass(frozen=True, slots=True)
class DraftPosition:
    """Acceptance at a position of a draft.

    number: from 1.
    steps: number of steps that accepted all earlier tokens.
    accepted: number of these steps that also accept this token.
    belief, head: mean probability of the drafted token in these steps, by the drafter's softmax and by its confidence head; None if
        unknown.
    """

    number: int
    steps: int
    accepted: int
    belief: float | None = None
    head: float | None = None

    @property
    def share(self) -> float:
        return self.accepted / self.steps


@dataclass(frozen=True, slots=True)
class DraftingRun:
    """A drafter's steps over texts.

    walks: the steps over each text.
    block: γ.
    visible: number of tokens after the anchor that the drafter is shown.
    """

    walks: tuple[TextWalk, ...] = ()
    block: int = 0
    visible: int = 0

    @property
    def alpha(self) -> float:
        """Committed tokens per step, including the bonus token."""
        tokens, steps = self._totals
        return float(tokens.sum() / max(1, steps.sum()))

    @property
    def estimate(self) -> Estimate:
        """α with an interval over texts."""
        return resampler(len(self.walks)).ratio(*self._totals, np.arange(len(self.walks)))

    @property
    def _totals(self) -> Ratio:
        """The numbers of generated tokens and of steps, each as an array over texts; α is the ratio of their sums."""
        return np.array([w.tokens for w in self.walks], float), np.array([len(w.accepted) for w in self.walks], float)

    def below(self, level: float) -> bool:
        """Returns whether α is significantly below a level; without an interval, whether it is below."""
        high = self.estimate.high
        return (self.alpha if high is None else high) < level

    def change(self, base: DraftingRun, tests: int = 1) -> Estimate:
        """Returns the change of α from ``base``, whose texts may be other responses to the same prompts.

        tests: number of intervals that are to hold simultaneously.
        """
        units = np.arange(len(self.walks))
        return resampler(len(units)).difference(self._totals, base._totals, units, tests)

    @property
    def by_anchor(self) -> list[Counts]:
        """The number of accepted tokens of a draft from each anchor, by text."""
        return [walk.by_anchor for walk in self.walks]

    @property
    def positions(self) -> list[DraftPosition]:
        """Acceptance by drafted position. Ignores the last step of each text, which the text's end may have cut.

        There are at most γ − 1 positions. Those of tokens that the drafter is shown are left out.
        """
        counts = reached([count for w in self.walks for count in w.accepted[:-1]])
        steps = [step for w in self.walks for step in zip(w.accepted[:-1], w.beliefs, strict=False)]

        def beliefs(number: int) -> tuple[float | None, float | None]:
            there = [rows[number - 1 - self.visible] for count, rows in steps if count >= number - 1]
            means = [sum(column) / len(there) for column in zip(*there, strict=True)] or [nan, nan]
            return tuple(None if isnan(mean) else mean for mean in means)  # type: ignore[return-value]

        shown = list(enumerate(counts[: self.block - 1], 1))[self.visible :]
        return [DraftPosition(number, *count, *beliefs(number)) for number, count in shown]

    @property
    def first(self) -> float:
        """Acceptance at the first drafted position; 0 if nothing was drafted."""
        return next((p.share for p in self.positions), 0.0)

    @property
    def shape(self) -> tuple[Shape, int | None]:
        """The shape of acceptance by position, and the position of the cliff or None. A cliff is a significant drop after high
        acceptance at position 1."""
        known = [p for p in self.positions if p.steps >= FEWEST_STEPS]
        if not known:
            return "unclear", None
        if wilson(known[0].share, known[0].steps)[0] < LOW and known[0].share < LOW:
            return "low", None
        for before, after in pairwise(known):
            high = wilson(after.share, after.steps, STRICT)[1]
            if high < FALL * before.share:
                return "cliff", after.number
        return "smooth", None

    @property
    def belief(self) -> tuple[float, float] | None:
        """What the drafter expected and what was accepted, as means over all drafted tokens that were compared; None if unknown."""
        known = [p for p in self.positions if p.belief is not None]
        if not known:
            return None
        steps = sum(p.steps for p in known)
        return sum((p.belief or 0.0) * p.steps for p in known) / steps, sum(p.accepted for p in known) / steps


def relative_gain(own: Sequence[Counts], base: Sequence[Counts], tests: int = 1) -> Estimate:
    """Returns the relative change of the committed tokens per draft, as a geometric mean over the texts' anchors.

    own, base: for each text, the number of accepted tokens of the drafts from the same anchors.
    tests: number of intervals that are to hold simultaneously.
    """
    units, anchors = np.arange(len(own)), np.array(list(map(len, own)), float)
    rises = np.array([np.log1p(after).sum() - np.log1p(before).sum() for after, before in zip(own, base, strict=True)])
    value, resamples = resampler(len(own)).resampled(rises, anchors, units)
    return resampler(len(own)).figure(float(np.expm1(value)), np.expm1(resamples), tests)


@lru_cache(4)
def resampler(texts: int) -> Resampler:
    """Cached, so that all runs over the same texts are compared with the same resamples."""
    return Resampler(texts)
