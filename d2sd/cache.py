"""Preallocated key-value storage of one generation: written in place, compacted after every step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of all layers in two static buffers, (layers, batch, KV heads, capacity, head_dim) each.

    The first ``length`` slots are committed. A forward pass writes its rows behind them (``update``, which also
    serves as the cache protocol of transformers); ``commit`` keeps some of these rows and forgets the rest.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
        batch: int = 1,
    ):
        shape = (layers, batch, kv_heads, capacity, head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.length = 0

    def update(self, key: Tensor, value: Tensor, layer: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write (batch, KV heads, R, D) rows behind the committed slots; returns views of both parts together."""
        end = self.length + key.shape[2]
        if end > self.keys.shape[3]:
            raise ValueError(f"{end} cache slots are needed, {self.keys.shape[3]} were allocated")
        keys, values = self.keys[layer], self.values[layer]
        keys[:, :, self.length : end] = key
        values[:, :, self.length : end] = value
        return keys[:, :, :end], values[:, :, :end]

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Views of one layer's committed keys and values, (batch, KV heads, length, D)."""
        return self.keys[index, :, :, : self.length], self.values[index, :, :, : self.length]

    def commit(self, rows: Sequence[int]) -> None:
        """Keep these rows of the last pass (ascending) and move them, in order, behind the committed slots."""
        start, count = self.length, len(rows)
        if list(rows) != list(range(count)):
            index = torch.tensor(rows, device=self.keys.device) + start
            for buffer in (self.keys, self.values):
                buffer[:, :, :, start : start + count] = buffer.index_select(3, index)
        self.length += count

    def keep_sequences(self, index: Tensor) -> None:
        """Drop all sequences of the batch but these."""
        self.keys, self.values = self.keys[:, index], self.values[:, index]

    def get_seq_length(self, _: int = 0) -> int:
        """Committed slots (the name that transformers asks for)."""
        return self.length
