"""The pass sizes of one cycle that runs on the device."""

from __future__ import annotations

from dataclasses import dataclass

from d2sd.decoding.inspection import measured_rows
from d2sd.decoding.packing import Packing
from d2sd.passes.shapes import row_shape
from d2sd.trace.events import TEMPERATURES


@dataclass(frozen=True, slots=True)
class CycleShape:
    """Sizes of a cycle's passes: γ (0: no draft), K, and γ₂ − γ.

    lengths: number of tokens below the anchor, by draft. If γ₂ > γ, one more branch continues the whole first draft.
    """

    block_size: int
    branches: int
    extension: int = 0

    @property
    def lengths(self) -> tuple[int, ...]:
        if not self.block_size:
            return ()
        first = self.block_size - 1
        again = self.branches + int(self.extension > 0) if self.branches else 0
        return first, *[first + self.extension] * again

    @property
    def depths(self) -> int:
        """Levels of the tree, including the anchor's."""
        return 1 + max(self.lengths, default=0)

    @property
    def rows(self) -> int:
        """Rows of the target's pass."""
        return row_shape(1 + len(self.lengths) * (self.depths - 1))

    def packing(self, inspect: bool, vocabulary: int, ranked: int) -> Packing:
        """Returns the layout of the numbers that a cycle copies to the host.

        ranked: width of a row of a draft: 3 × the number of likeliest tokens, see ``BlockDrafter.forward``.
        """
        shapes: dict[str, tuple[int, ...]] = {"measured": (measured_rows(inspect, vocabulary), self.rows)}
        lengths = self.lengths
        if lengths:
            shapes["first"] = (lengths[0], ranked)
            if inspect:
                shapes["tempered"] = (lengths[0], len(TEMPERATURES))
        if lengths[1:]:
            shapes |= {"prefixes": (len(lengths) - 1,), "second": (len(lengths) - 1, lengths[1], ranked)}
        return Packing(shapes)
