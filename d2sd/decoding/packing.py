"""Named arrays packed into one vector, so that a single copy transfers all of them from the device."""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from torch import Tensor


class Packing:
    """Arrays of these names and shapes, in this order, in one float64 vector (which holds whole numbers up to 2⁵³)."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]):
        self.shapes = shapes
        self._ends = np.cumsum([prod(shape) for shape in shapes.values()])

    def pack(self, arrays: dict[str, Tensor]) -> Tensor:
        """Returns the vector, on the device of the arrays."""
        return torch.cat([arrays[name].flatten().double() for name in self.shapes])

    def unpack(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the arrays of a packed vector, as views of it."""
        parts = np.split(vector, self._ends[:-1])
        return {n: part.reshape(shape) for (n, shape), part in zip(self.shapes.items(), parts, strict=True)}
