"""Target features: the outputs of chosen decoder layers, kept by forward hooks while the layers run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


class LayerTaps:
    """Keeps the newest output of the tapped layers; index n means the output of decoder layer n."""

    def __init__(self, layers: nn.ModuleList):
        self._layers = layers
        self._hooked: set[int] = set()
        self._outputs: dict[int, Tensor] = {}
        self._hooks: list[RemovableHandle] = []

    def add(self, indices: Iterable[int]) -> None:
        """Keep the outputs of these layers from now on."""
        for index in set(indices) - self._hooked:

            def keep(_: nn.Module, __: Any, output: Any, index: int = index) -> None:
                self._outputs[index] = output[0] if isinstance(output, tuple) else output

            self._hooks.append(self._layers[index].register_forward_hook(keep))
            self._hooked.add(index)

    @contextmanager
    def only(self, indices: Iterable[int]) -> Iterator[LayerTaps]:
        """Context in which only these layers' outputs are kept."""
        self.add(indices)
        try:
            yield self
        finally:
            for hook in self._hooks:
                hook.remove()
            self._hooked.clear()

    def keep(self, index: int, output: Tensor) -> None:
        """Store the output of a tapped layer that ran without its hooks."""
        if index in self._hooked:
            self._outputs[index] = output

    def outputs(self) -> tuple[Tensor, ...]:
        """Returns all tapped outputs of the last pass, by layer."""
        return tuple(self._outputs[i] for i in sorted(self._hooked))

    def restore(self, outputs: Iterable[Tensor]) -> None:
        """Replace the outputs of the last pass by these, since a replayed graph runs no hooks."""
        self._outputs = dict(zip(sorted(self._hooked), outputs, strict=True))

    def features(self, indices: Iterable[int], device: torch.device) -> Tensor:
        """Returns the tapped outputs of the last pass, concatenated, (B, rows, taps·hidden)."""
        return torch.cat([self._outputs[i].to(device) for i in indices], dim=-1)
