"""One drafter during one generation: its context cache and its batched draft pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from d2sd.attention import Backend
from d2sd.cache import KeyValueCache
from d2sd.models.drafter import DFlashDraftModel
from d2sd.models.target import Target

TOP = 5


@dataclass(frozen=True, slots=True)
class Block:
    """One drafted block below the anchor: ``prefix`` given tokens are not repeated in ``ids``.

    confidence[j] = drafter's probability of ids[j]; alternatives[j] = its most likely (id, probability) pairs.
    """

    prefix: int
    ids: tuple[int, ...]
    confidence: tuple[float, ...]
    alternatives: tuple[tuple[tuple[int, float], ...], ...]


class DraftSession:
    """Drafts from the growing context of one generation; only projected context is kept between steps."""

    def __init__(self, model: DFlashDraftModel, target: Target, capacity: int, backend: Backend, inspect: bool):
        self.model, self.target = model, target
        self.backend, self.top = backend, TOP if inspect else 1
        config = model.config
        self.cache = KeyValueCache(
            config.num_hidden_layers, config.num_key_value_heads, config.head_dim, capacity, model.dtype, model.device
        )
        self.scale = config.head_dim**-0.5
        self.mask_id = torch.tensor(model.mask_token_id, device=model.device)

    def extend(self, rows: Tensor | slice, positions: Tensor) -> None:
        """Add the tokens of these rows of the last target pass, at these (T,) positions, to the context."""
        features = self.target.features(self.model.target_layer_ids, rows).to(self.model.dtype)
        keys_values = self.model.project_context(features, positions[None])
        for layer, (key, value) in enumerate(keys_values):
            self.cache.update(key, value, layer)
        self.cache.length += len(positions)

    def draft(self, anchor: int, prefixes: Sequence[Sequence[int]], block_size: int) -> list[Block]:
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
        top = logits.softmax(-1).topk(self.top, dim=-1)
        probabilities, tokens = top.values.tolist(), top.indices.tolist()
        blocks, at = [], 0
        for prefix in prefixes:
            end = at + block_size - 1 - len(prefix)
            pairs = [tuple(zip(t, p, strict=True)) for t, p in zip(tokens[at:end], probabilities[at:end], strict=True)]
            blocks.append(
                Block(
                    len(prefix),
                    tuple(t[0] for t in tokens[at:end]),
                    tuple(min(1.0, p[0]) for p in probabilities[at:end]),
                    tuple(pairs) if self.top > 1 else (),
                )
            )
            at = end
        return blocks


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
