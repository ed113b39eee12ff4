"""One block drafter during one generation: its context cache and its batched draft pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from d2sd.attention import Backend
from d2sd.decoding.finite import check_confidence
from d2sd.models.drafter import DFlashDraftModel
from d2sd.models.target import Target
from d2sd.passes.cache import KeyValueCache
from d2sd.passes.passes import Passes
from d2sd.passes.shapes import row_shape
from d2sd.tree.block import Block, DrafterName

MAX_COMMITTED = 64  # tokens at once in a fixed-shape pass; more come with a prompt only


class BlockDrafter:
    """Drafts from the growing context of one generation; only projected context is kept between steps."""

    def __init__(self, name: DrafterName, model: DFlashDraftModel, target: Target, passes: Passes):
        self.name, self.model, self.target, self.passes = name, model, target, passes
        config = model.config

        def make(capacity: int) -> KeyValueCache:
            layers, heads = config.num_hidden_layers, config.num_key_value_heads
            return KeyValueCache(layers, heads, config.head_dim, capacity, model.dtype, model.device)

        self.cache = passes.cache(name, make)
        self.scale = config.head_dim**-0.5
        self._first_rows: tuple[Tensor, Block] | None = None

    def extend(self, features: Tensor, positions: Tensor) -> None:
        """Add committed tokens at these (T,) positions, by their (1, T, taps·hidden) target features, to the context."""
        features, count = features.to(self.model.dtype), len(positions)
        if self.passes.fixed and count <= MAX_COMMITTED:
            rows = row_shape(count)
            _, slots = self.passes.window(self.cache, rows)  # a token's slot is its position
            padded = torch.nn.functional.pad(features, (0, 0, 0, rows - count))
            self.passes.run(("extend", self.name, rows), self.project, padded, slots)
        else:
            for layer, (key, value) in enumerate(self.model.project_context(features, positions[None])):
                self.cache.update(key, value, layer)
        self.cache.length += count

    def project(self, features: Tensor, slots: Tensor) -> tuple[Tensor, ...]:
        """Write what (1, T, taps·hidden) features of tokens become into the context's slots (T,), their positions."""
        for layer, pair in enumerate(self.model.project_context(features, slots[None])):
            for buffer, new in zip(self.cache.buffers(layer), pair, strict=True):
                buffer.index_copy_(2, slots, new)
        return ()

    def draft(self, anchor: int, prefixes: Sequence[Sequence[int]], block_size: int, top: int) -> list[Block]:
        """One batched pass: for every prefix the block anchor, prefix, masks; greedy tokens at the masks.

        The anchor stands right after the context; all prefixes share the context's keys and values.
        """
        device, passes, mask = self.model.device, self.passes, self.model.mask_token_id
        rows = [[anchor, *p, *[mask] * (block_size - 1 - len(p))] for p in prefixes]
        ids = torch.tensor(rows, device=device)
        start = self.cache.length
        masked = [b * block_size + k for b, p in enumerate(prefixes) for k in range(1 + len(p), block_size)]
        count = len(masked)
        if passes.fixed and start:
            read, slots = passes.window(self.cache, block_size)
            masked += [0] * (len(prefixes) * (block_size - 1) - count)
            self.plan(len(prefixes), block_size)
            run = partial(self.forward, read=read, top=top)
            key = ("draft", self.name, ids.shape, read, top)
            best, logits = passes.run(key, run, ids, slots, torch.tensor(masked, device=device))
        else:
            positions = torch.arange(start, start + block_size, device=device)
            best, logits = self.forward(ids, positions, torch.tensor(masked, device=device), None, top)
        drafted, at = best[:count].tolist(), 0  # one copy from the device
        blocks = []
        for prefix in prefixes:
            end = at + block_size - 1 - len(prefix)
            blocks.append(self.block(len(prefix), drafted[at:end]))
            at = end
        if not prefixes[0]:
            self._first_rows = logits[: block_size - 1], blocks[0]
        return blocks

    def plan(self, branches: int, block_size: int) -> None:
        """Announce a fixed-shape pass over so many blocks of this size."""
        c = self.model.config
        shape = (branches, c.num_attention_heads, block_size, c.head_dim)
        self.passes.plan(shape, self.model.dtype, c.num_key_value_heads, self.cache.length, False, self.scale)

    def block(self, prefix: int, drafted: Sequence[Sequence[float]]) -> Block:
        """A drafted block from its rows of ``forward``'s first output."""
        ranked = len(drafted[0]) // 2 if drafted else 0
        tokens = [[int(t) for t in row[ranked:]] for row in drafted]
        probabilities = [row[:ranked] for row in drafted]
        ids, confidence = tuple(t[0] for t in tokens), tuple(p[0] for p in probabilities)
        check_confidence(confidence, self.model.config.name_or_path, self.target)
        return Block(self.name, prefix, ids, confidence, tokens, probabilities)

    def forward(
        self, ids: Tensor, positions: Tensor, masked: Tensor, read: int | None, top: int
    ) -> tuple[Tensor, Tensor]:
        """What is drafted at the ``masked`` rows (M,) of blocks (B, R) at positions (R,) right after the context.

        read: slots of the context that a fixed-shape pass reads; None: just those that are filled. Returns the top
        probabilities and, after them in the same float64 row, their tokens, (M, 2·top); and the logits (M, V).
        """
        layers, seen = range(self.model.config.num_hidden_layers), None
        if read is None:
            context = [self.cache.layer(i) for i in layers]
        else:
            context = [(k[:, :, :read], v[:, :, :read]) for k, v in map(self.cache.buffers, layers)]
            seen = torch.arange(read, device=ids.device) < positions[0]
        block = self.target.embedding(ids).to(self.model.dtype)
        hidden = self.model(block, positions[None], context, partial(_attend, self.passes.backend, self.scale, seen))
        hidden = hidden.flatten(0, 1)[masked]
        logits = self.target.head(hidden.to(self.target.dtype)).float()
        best = logits.softmax(-1).topk(min(top, logits.shape[-1]), dim=-1)
        return torch.cat([best.values.clamp_max(1.0).double(), best.indices.double()], -1), logits

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


def best_tokens(ranked: Tensor) -> Tensor:
    """The likeliest token of every row of ``BlockDrafter.forward``'s first output, int64."""
    return ranked[..., ranked.shape[-1] // 2].long()


def best_probabilities(ranked: Tensor) -> Tensor:
    """The probability of the likeliest token of every row of ``BlockDrafter.forward``'s first output, float64."""
    return ranked[..., 0]


def _attend(
    backend: Backend,
    scale: float,
    seen: Tensor | None,
    query: Tensor,
    context_key: Tensor,
    context_value: Tensor,
    key: Tensor,
    value: Tensor,
) -> Tensor:
    return backend(query, (context_key, context_value), (key, value), None, scale, None, seen)
