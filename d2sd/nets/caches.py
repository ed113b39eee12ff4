"""Preallocated key-value storage of one generation: written in place, compacted after every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of layers in static buffers, (layers, batch, KV heads, capacity, head_dim) each.

    The first ``length`` slots are committed. A forward pass writes its rows after them with ``update``, which is also
    transformers' cache protocol. ``commit`` keeps some of these rows and forgets the rest.

    shapes: key-value heads and the size of a head, by layer; layers alike on one device share a buffer.
    homes: where each layer's keys and values lie, as a model spread over GPUs has them.
    """

    def __init__(
        self,
        shapes: Mapping[int, tuple[int, int]],
        capacity: int,
        dtype: torch.dtype,
        homes: Mapping[int, torch.device],
        batch: int = 1,
    ):
        self.capacity, self.length = capacity, 0
        self._parts: list[tuple[Tensor, Tensor]] = []
        self._at: dict[int, tuple[int, int]] = {}
        alike = {layer: (homes[layer], *shape) for layer, shape in shapes.items()}
        for number, (home, heads, size) in enumerate(dict.fromkeys(alike.values())):
            own = [layer for layer, kind in alike.items() if kind == (home, heads, size)]
            self._at |= {layer: (number, index) for index, layer in enumerate(own)}
            shape = (len(own), batch, heads, capacity, size)
            keys, values = (torch.zeros(shape, dtype=dtype, device=home) for _ in range(2))
            self._parts.append((keys, values))

    @classmethod
    def uniform(
        cls, layers: int, kv_heads: int, head_dim: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> KeyValueCache:
        """Returns a cache of layers of one shape, on one device."""
        shapes = dict.fromkeys(range(layers), (kv_heads, head_dim))
        return cls(shapes, capacity, dtype, dict.fromkeys(shapes, device))

    def clear(self) -> None:
        """Drop the committed text."""
        self.length = 0

    @property
    def parts(self) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of layers alike, by GPU: the whole buffers."""
        return self._parts

    def buffers(self, layer: int) -> tuple[Tensor, Tensor]:
        """One layer's whole keys and values, (batch, KV heads, capacity, D)."""
        part, index = self._at[layer]
        keys, values = self._parts[part]
        return keys[index], values[index]

    def update(self, key: Tensor, value: Tensor, layer: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write (batch, KV heads, R, D) rows after the committed slots; returns views of both parts together."""
        end = self.length + key.shape[2]
        self._check(end)
        keys, values = self.buffers(layer)
        keys[:, :, self.length : end] = key
        values[:, :, self.length : end] = value
        return keys[:, :, :end], values[:, :, :end]

    def write(self, keys: Tensor, values: Tensor) -> None:
        """Write rows of all layers, (layers, batch, KV heads, R, D), after the committed slots; all on one device."""
        ((own_keys, own_values),) = self._parts
        end = self.length + keys.shape[3]
        self._check(end)
        own_keys[:, :, :, self.length : end] = keys
        own_values[:, :, :, self.length : end] = values

    def _check(self, end: int) -> None:
        if end > self.capacity:
            raise ValueError(f"{end} cache slots are needed, {self.capacity} were allocated")

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Views of one layer's committed keys and values, (batch, KV heads, length, D)."""
        keys, values = self.buffers(index)
        return keys[:, :, : self.length], values[:, :, : self.length]

    def commit(self, rows: Sequence[int]) -> None:
        """Keep these rows of the last pass (ascending) and move them, in order, after the committed slots."""
        start, count = self.length, len(rows)
        if list(rows) != list(range(count)):
            for buffer in (b for part in self._parts for b in part):
                index = torch.tensor(rows, device=buffer.device) + start
                buffer[:, :, :, start : start + count] = buffer.index_select(3, index)
        self.length += count

    def gather(self, slots: Tensor) -> tuple[Tensor, ...]:
        """Keys and values of all layers at these slots (S,), in the order of ``parts``."""
        return tuple(buffer.index_select(3, slots) for part in self._parts for buffer in part)

    def scatter(self, slots: Tensor, rows: Sequence[Tensor]) -> None:
        """Write the result of ``gather`` into these slots (S,)."""
        for buffer, given in zip((b for part in self._parts for b in part), rows, strict=True):
            buffer.index_copy_(3, slots, given)

    def keep_sequences(self, index: Tensor) -> None:
        """Keep only these sequences of the batch."""
        self._parts = [(k[:, index], v[:, index]) for k, v in self._parts]

    def get_seq_length(self, _: int = 0) -> int:
        """Committed slots (the name that transformers asks for)."""
        return self.length


class CacheWindow:
    """Stands in for a cache during a fixed-shape pass: rows are written to slots given on the device.

    ``update`` returns the whole prefix window, whose valid slots ``seen`` marks, and leaves the rows' own keys and
    values in ``fresh``. Needed where passes are captured as CUDA graphs (``d2sd.nets.passes``).
    """

    def __init__(self, cache: KeyValueCache, read: int, slots: Tensor):
        self._cache, self._read, self._slots = cache, read, slots
        self.seen = torch.arange(read, device=slots.device) < slots[0]
        self.fresh: tuple[Tensor, Tensor]

    def update(self, key: Tensor, value: Tensor, layer: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write (1, KV heads, R, D) rows; returns the layer's window, (1, KV heads, read, D) each."""
        self.fresh = key, value
        keys, values = self._cache.buffers(layer)
        keys.index_copy_(2, self._slots, key)
        values.index_copy_(2, self._slots, value)
        return keys[:, :, : self._read], values[:, :, : self._read]

    def get_seq_length(self, _: int = 0) -> int:
        """Slots that the window shows (the name that transformers asks for)."""
        return self._read
