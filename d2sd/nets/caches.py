"""Preallocated caches of one generation: keys and values of attention layers, and states of linear layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from d2sd.nets.lean import KeyValue, Write
from d2sd.nets.transformers_calls import refuse_unknown


class PassCache(ABC):
    """The methods of a cache that transformers calls in a forward pass. ``length`` is the number of slots that they report."""

    length: int

    def update(self, key: Tensor, value: Tensor, layer: int, kwargs: object = None, **others: object) -> KeyValue:
        """Calls ``store``. transformers 5.24 and later also pass ``kwargs``, which is not used."""
        refuse_unknown("caches", others)
        return self.store(key, value, layer)

    @abstractmethod
    def store(self, key: Tensor, value: Tensor, layer: int) -> KeyValue:
        """Writes a layer's rows, (B, KV heads, R, D). Returns the keys and values that the layer's attention reads, (B, KV heads,
        S, D) each.
        """

    def get_seq_length(self, _: int = 0) -> int:
        return self.length


class KeyValueCache(PassCache):
    """Keys and values of all layers, in buffers of fixed size.

    The first ``length`` slots are committed. A forward pass writes its rows after them. ``commit`` keeps some of these rows and
    discards the rest.

    shapes: (number of key-value heads, head_dim) of each layer. Layers with equal shapes on one device share a buffer.
    homes: device of each layer's keys and values; a model may be spread over several GPUs.
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
        self._groups: list[Tensor] = []  # for each group of layers: (layers, 2, batch, KV heads, capacity, D)
        self._places: dict[int, tuple[int, int]] = {}  # layer → its group, and its index in the group
        kinds = {layer: (homes[layer], *shape) for layer, shape in shapes.items()}
        for number, kind in enumerate(dict.fromkeys(kinds.values())):
            home, heads, size = kind
            layers = [layer for layer in kinds if kinds[layer] == kind]
            self._places |= {layer: (number, index) for index, layer in enumerate(layers)}
            self._groups.append(torch.zeros(len(layers), 2, batch, heads, capacity, size, dtype=dtype, device=home))

    @classmethod
    def uniform(
        cls, layers: int, kv_heads: int, head_dim: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> KeyValueCache:
        shapes = dict.fromkeys(range(layers), (kv_heads, head_dim))
        return cls(shapes, capacity, dtype, dict.fromkeys(shapes, device))

    @property
    def parts(self) -> list[Tensor]:
        """For each group of layers that share a buffer: its keys and then its values, (layers, batch, KV heads, capacity, D) each."""
        return [part for group in self._groups for part in group.unbind(1)]

    def clear(self) -> None:
        self.length = 0

    def buffers(self, layer: int) -> KeyValue:
        """Returns all slots of one layer's keys and values, (batch, KV heads, capacity, D) each."""
        group, index = self._places[layer]
        keys, values = self._groups[group][index]
        return keys, values

    def store(self, key: Tensor, value: Tensor, layer: int) -> KeyValue:
        """Writes rows after the committed slots. Returns views of all slots up to the last row."""
        end = self._end(key.shape[2])
        keys, values = self.buffers(layer)
        keys[:, :, self.length : end] = key
        values[:, :, self.length : end] = value
        return keys[:, :, :end], values[:, :, :end]

    def views(self, rows: int) -> list[tuple[Tensor, ...]]:
        """Returns three views per layer for a pass over ``rows`` rows. All layers must share one buffer.

        The first view has the slots that the pass writes, (2, batch, KV heads, rows, D). The other two are the keys and the
        values of the committed slots and the new rows, (batch, KV heads, length + rows, D) each.
        """
        end = self._end(rows)
        (group,) = self._groups
        seen = group[..., :end, :]
        return list(zip(seen[..., self.length :, :].unbind(), seen[:, 0].unbind(), seen[:, 1].unbind(), strict=True))

    def write(self, keys: Tensor, values: Tensor) -> None:
        """Writes rows, (layers, batch, KV heads, R, D), after the committed slots. All layers must share one buffer."""
        end = self._end(keys.shape[3])
        for buffer, rows in zip(self.parts, (keys, values), strict=True):
            buffer[:, :, :, self.length : end] = rows

    def _end(self, rows: int) -> int:
        """Returns the slot after ``rows`` new rows."""
        end = self.length + rows
        if end > self.capacity:
            raise ValueError(f"{end} cache slots are needed, {self.capacity} were allocated")
        return end

    def layer(self, index: int) -> KeyValue:
        """Returns views of one layer's committed keys and values, (batch, KV heads, length, D) each."""
        keys, values = self.buffers(index)
        return keys[:, :, : self.length], values[:, :, : self.length]

    def commit(self, rows: Sequence[int]) -> None:
        """Commits some rows of the last pass: moves them directly after the committed slots.

        rows: numbers of the rows in the pass, ascending.
        """
        start, count = self.length, len(rows)
        if list(rows) != list(range(count)):
            for buffer in self.parts:
                index = torch.tensor(rows, device=buffer.device) + start
                buffer[:, :, :, start : start + count] = buffer.index_select(3, index)
        self.length += count

    def gather(self, slots: Tensor) -> tuple[Tensor, ...]:
        """Returns the keys and values in the given slots (S,) of all layers, in the order of ``parts``."""
        return tuple(buffer.index_select(3, slots) for buffer in self.parts)

    def scatter(self, slots: Tensor, rows: Sequence[Tensor]) -> None:
        """Writes ``rows``, a result of ``gather``, into the given slots (S,)."""
        for buffer, given in zip(self.parts, rows, strict=True):
            buffer.index_copy_(3, slots, given)

    def keep_sequences(self, index: Tensor) -> None:
        self._groups = [group[:, :, index] for group in self._groups]

    def resize(self, capacity: int) -> None:
        """Changes the number of slots. Removed slots are the last ones."""
        if capacity != self.capacity:
            self._groups = [F.pad(group, (0, 0, 0, capacity - self.capacity)) for group in self._groups]
            self.capacity = capacity


class CacheWindow(PassCache):
    """Replaces a cache in fixed-shape passes, which may be captured as CUDA graphs (``d2sd.nets.passes``).

    Attention reads the window, which is the first ``read`` slots of the cache. After ``store``, ``fresh`` has the keys and values
    of the new rows of one layer. ``seen`` marks the committed slots. ``filled`` also marks the new slot in a pass over one row; in
    other passes, it is None.

    slots: (R,) on the device, the slots that the rows are written to.
    write: function that writes a layer's rows (``d2sd.nets.lean.Kernels.writer``).
    """

    def __init__(self, cache: KeyValueCache, read: int, slots: Tensor, write: Write):
        self._cache, self.length, self._write, self.capacity = cache, read, write, cache.capacity
        numbers = torch.arange(read, device=slots.device)
        self.seen = numbers < slots[0]
        self.filled = numbers <= slots[0] if len(slots) == 1 else None
        self.fresh: KeyValue

    def store(self, key: Tensor, value: Tensor, layer: int) -> KeyValue:
        """Writes rows of one text. Returns keys and values of the layer's window."""
        self.fresh = key, value
        keys, values = self._cache.buffers(layer)
        self._write(keys, values, key, value)
        return keys[:, :, : self.length], values[:, :, : self.length]


class BatchPass(PassCache):
    """Replaces a cache in passes over one token of each text of a batch, with the texts at different positions.

    Every token is written to the slot of its position. Attention reads all slots.

    places: (B,) int64, positions of the tokens in their texts, below the capacity.
    """

    def __init__(self, cache: KeyValueCache, places: Tensor):
        self.cache, self.length, self._places = cache, cache.capacity, places
        self._rows = torch.arange(len(places), device=places.device)
        self._ages = places[:, None] - torch.arange(cache.capacity, device=places.device)
        self._seen: dict[int | None, Tensor] = {}

    def store(self, key: Tensor, value: Tensor, layer: int) -> KeyValue:
        """Writes one row per text. Returns keys and values of all slots."""
        keys, values = self.cache.buffers(layer)
        keys[self._rows, :, self._places] = key[:, :, 0].to(keys.dtype)
        values[self._rows, :, self._places] = value[:, :, 0].to(values.dtype)
        return keys, values

    def seen(self, window: int | None) -> Tensor:
        """Returns the slots that each text sees, (B, 1, 1, capacity) bool.

        window: number of tokens in the attention window; None without a window.
        """
        if window not in self._seen:
            seen = self._ages >= 0
            self._seen[window] = (seen if window is None else seen & (self._ages < window))[:, None, None]
        return self._seen[window]

    def commit(self) -> None:
        """Updates the states of linear layers with the written token."""
        if isinstance(self.cache, LayerCache):
            for state in self.cache.states.values():
                state.commit(0)


# States of linear layers.


class DeltaRows(NamedTuple):
    """What the rows of a pass add to the state of a gated delta net. It is stored until the accepted path is known.

    inputs: (B, channels, kernel − 1 + R), inputs of the convolution: the last kernel − 1 of the committed text, then those of the
        rows.
    places: (R, kernel), for each row, the indices of ``inputs`` that the convolution reads, the row's own index last.
    key, update: (B, H, R, K) and (B, H, R, V); a row adds the outer product of its key and its update to the matrix.
    total: (B, H, R), sum of the log decays along the path to each row.
    ancestors: (R, R) bool, True for a row's ancestors and itself.
    """

    inputs: Tensor
    places: Tensor
    key: Tensor
    update: Tensor
    total: Tensor
    ancestors: Tensor


class LinearState:
    """State of a gated delta net after the committed text.

    inputs: (B, channels, kernel − 1), the last inputs of the convolution.
    matrix: (B, H, K, V) float32.
    rows: contributions of the last pass's rows; None after ``commit``.
    """

    def __init__(self, inputs: Tensor, matrix: Tensor):
        self.become(inputs, matrix)

    def become(self, inputs: Tensor, matrix: Tensor) -> None:
        self.inputs, self.matrix = inputs, matrix
        self.rows: DeltaRows | None = None

    def commit(self, last: int) -> None:
        """Updates the state along an accepted path.

        last: number of the last row of the path.
        """
        if (rows := self.rows) is None:
            return
        weight = (rows.total[..., last, None] - rows.total).masked_fill(~rows.ancestors[last], float("-inf")).exp()
        added = (rows.key * weight[..., None]).transpose(-1, -2) @ rows.update
        self.matrix = self.matrix * rows.total[..., last, None, None].exp() + added
        self.inputs = rows.inputs[..., rows.places[last, 1:]]
        self.rows = None


class LayerCache(KeyValueCache):
    """Keys and values of the attention layers, and ``states`` of the linear layers by layer number.

    The prompt is read in one pass and committed as a whole. In this pass, linear layers run transformers' own code, which calls the
    last methods of this class. In later passes, they run ``d2sd.nets.linear_attention``.
    """

    def __init__(self, states: Mapping[int, LinearState], *arguments: Any):
        """states: states of the linear layers, by layer number.
        arguments: arguments of ``KeyValueCache``.
        """
        super().__init__(*arguments)
        self.states = states

    def _change(self, function: Callable[[Tensor], Tensor]) -> None:
        """Replaces both parts of every state by what ``function`` returns for them."""
        for state in self.states.values():
            state.become(function(state.inputs), function(state.matrix))

    def clear(self) -> None:
        super().clear()
        self._change(torch.zeros_like)

    def commit(self, rows: Sequence[int]) -> None:
        """Commits rows of the last pass in every layer. The rows must form a path that starts at the first row."""
        super().commit(rows)
        for state in self.states.values():
            state.commit(rows[-1])

    def snapshot(self) -> list[tuple[Tensor, Tensor]]:
        """Returns the states after the committed text, for ``restore``. These tensors are never modified in place."""
        return [(state.inputs, state.matrix) for state in self.states.values()]

    def restore(self, length: int, states: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Returns to an earlier state of the text, with ``length`` slots.

        states: the result of ``snapshot`` at this length.
        """
        self.length = length
        for state, (inputs, matrix) in zip(self.states.values(), states, strict=True):
            state.become(inputs, matrix)

    def keep_sequences(self, index: Tensor) -> None:
        super().keep_sequences(index)
        self._change(lambda part: part[index])

    def forget(self, index: Tensor) -> None:
        self._change(lambda part: part.index_fill(0, index, 0.0))

    def get_conv_state(self, layer: int, state_idx: int = 0) -> None:
        """Returns None: there is no state at the start of a text."""

    get_recurrent_state = get_conv_state

    def update_conv_state(self, inputs: Tensor, layer: int, conv_kernel_size: int | None = None) -> Tensor:
        """Stores the last kernel − 1 of the ``inputs`` (B, channels, T). Returns ``inputs`` unchanged."""
        state, size = self.states[layer], self.states[layer].inputs.shape[-1]
        state.become(F.pad(inputs, (max(0, size - inputs.shape[-1]), 0))[..., -size:].clone(), state.matrix)
        return inputs

    def update_recurrent_state(self, matrix: Tensor, layer: int) -> None:
        """Stores the matrix (B, H, K, V) after the text."""
        self.states[layer].matrix = matrix
