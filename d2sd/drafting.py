"""One block drafter during one generation: its context cache and its batched draft pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from d2sd.attention import Backend
from d2sd.cache import KeyValueCache
from d2sd.models.drafter import DFlashDraftModel
from d2sd.models.target import Target

DrafterName = Literal["first", "second"]


@dataclass(frozen=True, slots=True)
class Block:
    """Drafted tokens below the anchor, behind ``prefix`` given ones of candidate ``base`` (see ``events.Draft``).

    confidence[j]: drafter's probability of ids[j]; tokens[j], probabilities[j]: its most likely tokens there, best
    first, as many as were asked for.
    """

    drafter: DrafterName
    prefix: int
    ids: tuple[int, ...]
    confidence: tuple[float, ...]
    tokens: Sequence[Sequence[int]]
    probabilities: Sequence[Sequence[float]]
    base: int = 0


class DraftSession:
    """Drafts from the growing context of one generation; only projected context is kept between steps."""

    def __init__(self, name: DrafterName, model: DFlashDraftModel, target: Target, capacity: int, backend: Backend):
        self.name, self.model, self.target, self.backend = name, model, target, backend
        config = model.config
        self.cache = KeyValueCache(
            config.num_hidden_layers, config.num_key_value_heads, config.head_dim, capacity, model.dtype, model.device
        )
        self.scale = config.head_dim**-0.5
        self._first_rows: tuple[Tensor, Block] | None = None

    def extend(self, features: Tensor, positions: Tensor) -> None:
        """Add committed tokens at these (T,) positions, by their (1, T, taps·hidden) target features, to the context."""
        keys_values = self.model.project_context(features.to(self.model.dtype), positions[None])
        for layer, (key, value) in enumerate(keys_values):
            self.cache.update(key, value, layer)
        self.cache.length += len(positions)

    def draft(self, anchor: int, prefixes: Sequence[Sequence[int]], block_size: int, top: int) -> list[Block]:
        """One batched pass: for every prefix the block anchor, prefix, masks; greedy tokens at the masks.

        The anchor stands right behind the context; all prefixes share the context's keys and values.
        """
        device, batch = self.model.device, len(prefixes)
        mask = self.model.mask_token_id
        rows = [[anchor, *p, *[mask] * (block_size - 1 - len(p))] for p in prefixes]
        ids = torch.tensor(rows, device=device)
        start = self.cache.length
        positions = torch.arange(start, start + block_size, device=device)[None]
        context = [self.cache.layer(i) for i in range(self.model.config.num_hidden_layers)]
        block = self.target.embedding(ids).to(self.model.dtype)
        hidden = self.model(block, positions, context, partial(_attend, self.backend, self.scale))
        masked = [b * block_size + k for b, p in enumerate(prefixes) for k in range(1 + len(p), block_size)]
        if len(masked) < batch * block_size:
            hidden = hidden.flatten(0, 1)[torch.tensor(masked, device=device)]
        logits = self.target.head(hidden.to(self.target.dtype)).float()
        best = logits.softmax(-1).topk(min(top, logits.shape[-1]), dim=-1)
        probabilities, tokens = best.values.clamp_max_(1.0).tolist(), best.indices.tolist()
        blocks, at = [], 0
        for prefix in prefixes:
            end = at + block_size - 1 - len(prefix)
            t, p = tokens[at:end], probabilities[at:end]
            blocks.append(Block(self.name, len(prefix), tuple(x[0] for x in t), tuple(x[0] for x in p), t, p))
            at = end
        if not prefixes[0]:
            self._first_rows = logits[: block_size - 1], blocks[0]
        return blocks

    def sample(self, count: int, seed: int) -> list[Block]:
        """``count`` blocks drawn i.i.d. at temperature 1 from the distributions of the last unconditioned draft."""
        assert self._first_rows is not None, "draft first"
        logits, block = self._first_rows
        probabilities = logits.softmax(-1)
        generator = torch.Generator(logits.device).manual_seed(seed)
        ids = torch.multinomial(probabilities, count, replacement=True, generator=generator)
        confidence = probabilities.gather(1, ids).T.tolist()
        return [
            replace(block, ids=tuple(i), confidence=tuple(c)) for i, c in zip(ids.T.tolist(), confidence, strict=True)
        ]


def _attend(
    backend: Backend,
    scale: float,
    query: Tensor,
    context_key: Tensor,
    context_value: Tensor,
    key: Tensor,
    value: Tensor,
) -> Tensor:
    return backend(query, (context_key, context_value), (key, value), None, scale, None)
