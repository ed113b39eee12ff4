"""The cache of a target with several kinds of layers: keys and values of attention layers, states of linear ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from d2sd.passes.cache import KeyValueCache


@dataclass(frozen=True, slots=True)
class DeltaRows:
    """The contributions of a pass's rows to a gated delta net, kept until the accepted path is known.

    inputs: (B, channels, kernel − 1 + R), the last inputs of the text's convolution and those of the rows.
    places: (R, kernel), by row where the inputs of its convolution stand there, its own last.
    key, update: (B, H, R, K) and (B, H, R, V), what each row adds to the matrix.
    total: (B, H, R), the sum of logarithms of decays along a row's path.
    ancestors: (R, R) bool, a row's ancestors and itself.
    """

    inputs: Tensor
    places: Tensor
    key: Tensor
    update: Tensor
    total: Tensor
    ancestors: Tensor


class LinearState:
    """State of a gated delta net after the committed text.

    inputs: (B, channels, kernel − 1), the last inputs of its convolution.
    matrix: (B, H, K, V) float32.
    """

    def __init__(self, inputs: Tensor, matrix: Tensor):
        self.inputs, self.matrix = inputs, matrix
        self._rows: DeltaRows | None = None

    def become(self, inputs: Tensor, matrix: Tensor) -> None:
        """Replace the state and drop the rows of the last pass."""
        self.inputs, self.matrix, self._rows = inputs, matrix, None

    def clear(self) -> None:
        """Reset to the state before any text."""
        self.become(torch.zeros_like(self.inputs), torch.zeros_like(self.matrix))

    def read_text(self, inputs: Tensor) -> None:
        """Keep the last of the convolution's inputs (B, channels, T) of a text that is read from its beginning and kept whole."""
        self._rows, size = None, self.inputs.shape[-1]
        self.inputs = F.pad(inputs, (max(0, size - inputs.shape[-1]), 0))[..., -size:].clone()

    def read_rows(self, rows: DeltaRows) -> None:
        """Store the contributions of a pass's rows."""
        self._rows = rows

    def commit(self, last: int) -> None:
        """Advance to the last row of an accepted path."""
        if (rows := self._rows) is None:
            return
        weight = (rows.total[..., last, None] - rows.total).masked_fill(~rows.ancestors[last], float("-inf")).exp()
        added = (rows.key * weight[..., None]).transpose(-1, -2) @ rows.update
        self.matrix = self.matrix * rows.total[..., last, None, None].exp() + added
        self.inputs = rows.inputs[..., rows.places[last, 1:]]
        self._rows = None


class LayerCache(KeyValueCache):
    """Keys and values of the attention layers, and ``states`` of the linear ones by layer.

    A text is read from its beginning in one pass, which is committed whole. The names of transformers' cache protocol serve the
    layers' own code in that pass; in later ones ``d2sd.models.delta_net`` runs.
    """

    def __init__(self, shapes: Mapping[int, tuple[int, int]], states: Mapping[int, LinearState], capacity: int,
                 dtype: torch.dtype, homes: Mapping[int, torch.device], batch: int = 1):  # fmt: skip
        super().__init__(shapes, capacity, dtype, homes, batch)
        self._states = dict(states)

    def state(self, layer: int) -> LinearState:
        """The state of a linear layer."""
        return self._states[layer]

    def clear(self) -> None:
        """Drop the committed text."""
        super().clear()
        for state in self._states.values():
            state.clear()

    def commit(self, rows: Sequence[int]) -> None:
        """Keep these rows of the last pass, a path from its first row on, in every layer."""
        super().commit(rows)
        for state in self._states.values():
            state.commit(rows[-1])

    def snapshot(self) -> list[tuple[Tensor, Tensor]]:
        """Returns the states after the committed text, for ``restore``; they are never written in place."""
        return [(state.inputs, state.matrix) for state in self._states.values()]

    def restore(self, length: int, states: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Go back to the first ``length`` committed slots, behind which these were the states."""
        self.length = length
        for state, (inputs, matrix) in zip(self._states.values(), states, strict=True):
            state.become(inputs, matrix)

    def keep_sequences(self, index: Tensor) -> None:
        """Keep only these sequences of the batch."""
        super().keep_sequences(index)
        for state in self._states.values():
            state.become(state.inputs[index], state.matrix[index])

    def get_conv_state(self, layer: int, state_idx: int = 0) -> None:
        """There is none at the beginning of a text."""

    def get_recurrent_state(self, layer: int, state_idx: int = 0) -> None:
        """There is none at the beginning of a text."""

    def update_conv_state(self, inputs: Tensor, layer: int, conv_kernel_size: int | None = None) -> Tensor:
        """Keep the last of these inputs (B, channels, T), which are returned as they are."""
        self.state(layer).read_text(inputs)
        return inputs

    def update_recurrent_state(self, matrix: Tensor, layer: int) -> None:
        """Keep the matrix (B, H, K, V) behind the text."""
        self.state(layer).matrix = matrix
