"""The autoregressive draft model during one generation: it drafts a chain of greedy tokens, one pass per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from d2sd.decoding.finite import not_finite
from d2sd.decoding.tempered import rows_of, tempered
from d2sd.models.target import Target
from d2sd.passes.passes import Passes
from d2sd.passes.states import LayerCache
from d2sd.tree.block import Block


class ChainDrafter:
    """The draft model and its cache, which follows the committed text; rejected tokens are overwritten."""

    def __init__(self, model: Target, passes: Passes, inspect: bool = False):
        self.model, self.backend, self.inspect = model, passes.backend, inspect
        self.cache = passes.cache("draft_model", model.new_cache)
        self._read: list[int] = []  # tokens whose keys and values are in the cache
        self._sure = 0  # how many of them were committed text when they were read
        self._states: list[tuple[Tensor, Tensor]] = []  # of linear layers, behind the committed text that was read last

    def read(self, ids: Sequence[int]) -> Tensor:
        """Process the committed ``ids`` that are not in the cache yet. Returns the logits after the last one, (V,)."""
        if isinstance(self.cache, LayerCache):
            return self._read_on(self.cache, ids)
        kept, most = self._sure, min(len(self._read), len(ids) - 1)
        while kept < most and self._read[kept] == ids[kept]:
            kept += 1
        self.cache.length = kept
        self._read, self._sure = list(ids), len(ids) - 1
        return self._forward(torch.tensor(ids[kept:], device=self.model.device))

    def _read_on(self, cache: LayerCache, ids: Sequence[int]) -> Tensor:
        """``read`` for linear states, which cannot be truncated: drafted tokens are processed again once committed."""
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
        """As ``draft``, after tokens (R,) that are not kept in the cache; used for timing."""
        return self._chain(self._forward(rows), count)[0]

    def _chain(self, logits: Tensor, count: int) -> tuple[Block, list[int]]:
        tokens, confidence, seen = [], [], []
        for number in range(count):
            best, token = logits.max(-1)
            confidence.append((best - logits.logsumexp(-1)).exp())
            tokens.append(token)
            if self.inspect:
                seen.append((logits, best))
            if number + 1 < count:
                logits = self._forward(token[None])
        chosen, given = torch.stack(tokens).tolist(), torch.stack(confidence).clamp_max(1.0).tolist()
        if any(c != c for c in given):
            raise not_finite(f"the draft model {self.model.name}")
        block = Block("first", 0, tuple(chosen), tuple(given), [[t] for t in chosen], [[c] for c in given])
        if seen:
            scores, own = map(torch.stack, zip(*seen, strict=True))
            block = replace(block, tempered=rows_of(tempered(scores, own)))
        return block, chosen

    def _forward(self, rows: Tensor) -> Tensor:
        start, count = self.cache.length, len(rows)
        positions = torch.arange(start, start + count, device=rows.device)
        mask = torch.ones(count, count, dtype=torch.bool, device=rows.device).tril() if start and count > 1 else None
        hidden = self.model.forward(rows, positions, self.cache, mask, self.backend)
        self.cache.commit(range(count))
        return self.model.logits(hidden[-1])
