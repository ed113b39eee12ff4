"""Drafters that need several passes per draft, during one generation.

EAGLE-3's draft tree grows by one level per pass. An autoregressive draft model's chain grows by one greedy token per pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import torch
from torch import Tensor
from torch.nn import functional as F

from d2sd.decoding.block_drafter import MAX_COMMITTED
from d2sd.decoding.inspection import rows_of, tempered
from d2sd.nets.caches import KeyValueCache, LayerCache
from d2sd.nets.eagle3 import Eagle3DraftModel
from d2sd.nets.models import check_confidence, not_finite
from d2sd.nets.passes import Passes, context_shape, row_shape
from d2sd.nets.target import Target
from d2sd.tree.block import Block
from d2sd.tree.levels import Level


class LevelDrafter:
    """The EAGLE-3 drafter, which drafts from the target's features of the committed text.

    The cache contains keys and values of the committed text, with one row per token whose next token is committed too. The rows of
    a tree are stored after these rows, level by level, until the next committed rows overwrite them.

    depth: number of passes after the first one; the deepest nodes of the tree have depth ``depth`` + 1.
    top_k: number of children scored per node, and of nodes kept per level.
    """

    def __init__(self, model: Eagle3DraftModel, target: Target, passes: Passes, depth: int, top_k: int):
        self.model, self.target, self.passes, self.depth = model, target, passes, depth
        self.top_k = min(top_k, model.form.drafted)
        c = model.config
        make = partial(
            KeyValueCache.uniform, 1, c.num_key_value_heads, c.head_dim, dtype=model.dtype, device=model.device
        )
        self.cache = passes.cache("eagle3", make)
        self.embedding = model.embed_tokens or target.embedding
        self._pending: Tensor | None = None  # features of the rows after the cached ones, (1, T, taps·width)

    def extend(self, features: Tensor) -> None:
        """Adds the target's features (1, T, taps·width) of newly committed tokens."""
        features = features.to(self.model.dtype)
        self._pending = features if self._pending is None else torch.cat([self._pending, features], 1)

    def read(self, ids: Sequence[int]) -> None:
        """Writes all pending rows except the last one into the cache.

        ids: all committed tokens.
        """
        assert self._pending is not None
        count, start, device = self._pending.shape[1] - 1, self.cache.length, self.model.device
        if not count:
            return
        features, self._pending = self._pending[:, :count], self._pending[:, count:]
        tokens = torch.tensor([ids[start + 1 : start + 1 + count]], device=device)
        if self.passes.fixed and count <= MAX_COMMITTED:
            rows = row_shape(count)
            _, slots = self.passes.window(self.cache, rows)  # a row's slot is its position
            features = F.pad(features, (0, 0, 0, rows - count))
            self.passes.run(("eagle3 read", rows), self._store, features, F.pad(tokens, (0, rows - count)), slots)
        else:
            self._store(features, tokens, torch.arange(start, start + count, device=device))
        self.cache.length += count

    def draft(self, ids: Sequence[int]) -> list[Level]:
        """Returns the levels of a tree below the anchor.

        ids: all committed tokens. The last one is the anchor, for which the target has not computed features yet.
        """
        self.read(ids)
        assert self._pending is not None
        start, passes = self.cache.length, self.passes  # slot of the last committed row, the parent of the first level
        tokens = torch.tensor([[ids[start + 1]]], device=self.model.device)
        read = None
        if passes.fixed:
            read = min(context_shape(start + 1 + self.depth * self.top_k), passes.capacity)
        slot = torch.tensor([start], device=self.model.device)
        grow = partial(self._grow, read, start)
        (numbers,) = passes.run(("eagle3 draft", read, self.depth, self.top_k), grow, self._pending, tokens, slot)
        self.cache.length += 1
        self._pending = None
        scored = numbers.tolist()  # one copy from the device
        check_confidence(scored, self.model.config.name_or_path, self.target)
        return self._levels(scored)

    def _store(self, features: Tensor, tokens: Tensor, slots: Tensor) -> tuple[Tensor, ...]:
        """Writes keys and values of T rows into the cache.

        features: target features of the rows, (1, T, taps·width).
        tokens: the next token of each row, (1, T).
        slots: cache slots of the rows, which are also their positions, (T,).
        """
        embedding = self.embedding(tokens).to(self.model.dtype)
        pair = self.model.keys_values(embedding, self.model.project(features), slots[None])
        for buffer, new in zip(self.cache.buffers(0), pair, strict=True):
            buffer.index_copy_(2, slots, new)
        return ()

    def _grow(self, read: int | None, start: int, features: Tensor, tokens: Tensor, slot: Tensor) -> tuple[Tensor]:
        """Runs all passes of a tree: one over the last committed row, then ``depth`` passes over k rows each (k = ``top_k``).

        read: number of slots that every pass reads; None: every pass reads only the used slots.
        start: number of cached rows before the tree.
        features, tokens, slot: features, next token and slot of the last committed row.

        Returns one float64 vector. For each level, it has the scores of the candidates, then their tokens, and then the indices of
        the k candidates that the next level continues.
        """
        model, k, device = self.model, self.top_k, tokens.device
        feature = model.project(features)
        positions, slots = slot, slot
        # [row, slot − first slot]: True for the row itself and its ancestors
        seen = torch.ones(1, 1, dtype=torch.bool, device=device)
        below = torch.zeros(1, dtype=torch.float32, device=device)
        results = []
        for level in range(self.depth + 1):
            end = read if read is not None else start + 1 + level * k
            attend = partial(self._attend, slots[-len(positions) :], slots, seen, end)
            hidden = model(self.embedding(tokens).to(model.dtype), feature, positions[None], attend)
            best = model.logits(hidden)[0].log_softmax(-1).clamp_max(0.0).topk(k, dim=-1)
            scores = (below[:, None] + best.values).flatten()
            continued = scores.argsort(descending=True, stable=True)[:k]
            drafted = model.token_ids[best.indices].flatten()
            results += [scores, drafted, continued]
            parents = continued // k
            below, tokens = scores[continued], drafted[continued][None]
            feature = model.following(hidden).index_select(1, parents)
            positions = (slot + 1 + level).expand(k)
            slots = torch.cat([slots, slot + 1 + level * k + torch.arange(k, device=device)])
            seen = torch.cat([seen[parents], torch.eye(k, dtype=torch.bool, device=device)], 1)
        return (torch.cat([part.double() for part in results]),)

    def _attend(
        self, row_slots: Tensor, slots: Tensor, seen: Tensor, end: int, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        """Writes keys and values of R rows into the cache, then attends to the committed rows and to each row's ancestors.

        row_slots: (R,) slots of the rows.
        slots: (M,) slots of the last committed row and of all rows of the tree so far.
        seen: (R, M) bool; True if a row attends to a slot.
        end: number of slots that are read.
        """
        keys, values = self.cache.buffers(0)
        keys.index_copy_(2, row_slots, key)
        values.index_copy_(2, row_slots, value)
        above = torch.arange(end, device=query.device) < slots[0]
        mask = above.expand(len(row_slots), -1).scatter(1, slots.expand(len(row_slots), -1), seen)
        return F.scaled_dot_product_attention(query, keys[:, :, :end], values[:, :, :end], mask, enable_gqa=True)

    def _levels(self, numbers: list[float]) -> list[Level]:
        """Returns the levels in the output of ``_grow``."""
        k, rest, out = self.top_k, iter(numbers), []
        for level in range(self.depth + 1):
            size = k * k if level else k
            scores, tokens = list(islice(rest, size)), list(map(int, islice(rest, size)))
            continued = list(map(int, islice(rest, k)))
            out.append(Level([n // k for n in range(size)], tokens, scores, continued))
        return out


class ChainDrafter:
    """An autoregressive draft model and its cache of the committed text. New tokens overwrite rejected ones in the cache."""

    def __init__(self, model: Target, passes: Passes, inspect: bool):
        self.model, self.backend, self.inspect = model, passes.backend, inspect
        self.cache = passes.cache("draft_model", model.new_cache)
        self._read: list[int] = []  # tokens whose keys and values are in the cache
        self._sure = 0  # number of leading tokens in ``_read`` that were committed when they were processed
        self._states: list[tuple[Tensor, Tensor]] = []  # states of linear layers after the committed text

    def read(self, ids: Sequence[int]) -> Tensor:
        """Processes the committed ``ids`` that are not in the cache yet. Returns the logits after the last one, (V,)."""
        if isinstance(self.cache, LayerCache):
            return self._read_on(self.cache, ids)
        common, most = self._sure, min(len(self._read), len(ids) - 1)
        while common < most and self._read[common] == ids[common]:
            common += 1
        self.cache.length = common
        self._read, self._sure = list(ids), len(ids) - 1
        return self._forward(torch.tensor(ids[common:], device=self.model.device))

    def _read_on(self, cache: LayerCache, ids: Sequence[int]) -> Tensor:
        """Does the same as ``read``, for models with linear layers. Their states cannot be truncated, so drafted tokens are
        processed again when they are committed.
        """
        if self._states and len(ids) > self._sure:
            cache.restore(self._sure, self._states)
        else:
            cache.clear()
        logits = self._forward(torch.tensor(ids[cache.length :], device=self.model.device))
        self._sure, self._states = len(ids), cache.snapshot()
        return logits

    def draft(self, ids: Sequence[int], count: int) -> Block:
        """Returns ``count`` greedy tokens after the committed ``ids``, each with its probability at temperature 1."""
        block, chosen = self._chain(self.read(ids), count)
        self._read += chosen[:-1]
        return block

    def draft_after(self, rows: Tensor, count: int) -> Block:
        """Drafts ``count`` tokens after processing the tokens ``rows`` (R,). Used for timing: the tokens are not recorded as
        processed.
        """
        return self._chain(self._forward(rows), count)[0]

    def _chain(self, logits: Tensor, count: int) -> tuple[Block, list[int]]:
        tokens, probabilities, seen = [], [], []
        for number in range(count):
            best, token = logits.max(-1)
            probabilities.append((best - logits.logsumexp(-1)).exp())
            tokens.append(token)
            if self.inspect:
                seen.append((logits, token))
            if number + 1 < count:
                logits = self._forward(token[None])
        chosen, confidence = torch.stack(tokens).tolist(), torch.stack(probabilities).clamp_max(1.0).tolist()
        if any(c != c for c in confidence):
            raise not_finite(f"the draft model {self.model.name}")
        block = Block("first", 0, tuple(chosen), tuple(confidence), [[t] for t in chosen], [[c] for c in confidence])
        if seen:
            scores, picked = map(torch.stack, zip(*seen, strict=True))
            block = replace(block, tempered=rows_of(tempered(scores, picked)))
        return block, chosen

    def _forward(self, rows: Tensor) -> Tensor:
        start, count = self.cache.length, len(rows)
        positions = torch.arange(start, start + count, device=rows.device)
        mask = torch.ones(count, count, dtype=torch.bool, device=rows.device).tril() if start and count > 1 else None
        hidden = self.model.forward(rows, positions, self.cache, mask, self.backend)
        self.cache.commit(range(count))
        return self.model.logits(hidden[-1])
