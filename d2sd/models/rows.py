"""Which keys the rows of one pass see, computed once for all layers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(slots=True)
class PassRows:
    """Rows of a pass over a token tree, or over a chain.

    positions: (R,) of the rows in the text; rows at the same depth of a tree share one.
    mask: (R, R) bool, entry [n, m] is True where m is n or an ancestor of n, which comes before it; None for a chain.
    """

    positions: Tensor
    mask: Tensor | None
    _known: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def chain(cls, count: int, device: torch.device) -> PassRows:
        """Returns rows that each follow the one before."""
        return cls(torch.arange(count, device=device), None)

    def ancestors(self, device: torch.device) -> Tensor:
        """Returns the ancestor mask, also for a chain."""
        if device not in self._known:
            count = len(self.positions)
            chain = self.mask is None
            mask = torch.ones(count, count, dtype=torch.bool).tril() if chain else self.mask
            assert mask is not None
            self._known[device] = mask.to(device)
        found: Tensor = self._known[device]
        return found

    def within(self, window: int, low: int, context: int, device: torch.device) -> tuple[Tensor | None, Tensor]:
        """Returns what rows see through a window of this many tokens, including themselves.

        Of prefix slots, whose numbers are their positions, those from ``low`` up to ``context``: (R, C) bool, None where all of
        them are seen. And the mask of the rows.
        """
        key = (window, low, context, device)
        if key not in self._known:
            positions = self.positions.to(device)
            distance = positions[:, None] - torch.arange(low, context, device=device)
            own = self.ancestors(device)
            if len(positions) > window:
                own = own & (positions[:, None] - positions < window)
            # rows lie at most so far behind the first one as there are others
            reached = context + len(positions) - 1 - low < window
            self._known[key] = None if reached else distance < window, own
        found: tuple[Tensor | None, Tensor] = self._known[key]
        return found

    def convolved(self, kernel: int, device: torch.device) -> Tensor:
        """For every row the places of the ``kernel`` inputs that a causal convolution reads along its path, the row's own last:
        (R, kernel), in the last kernel − 1 inputs of the text followed by those of the rows."""
        key = (kernel, device)
        if key not in self._known:
            count, before = len(self.positions), kernel - 1
            numbers = torch.arange(count, device=device)
            strict = self.ancestors(device).tril(-1)
            parents = torch.where(strict, numbers, -1).amax(
                -1
            )  # the last ancestor; the text's last input above the root
            above = torch.cat([torch.arange(-1, before - 1, device=device), parents + before])
            places = [numbers + before]
            for _ in range(before):
                places.append(above[places[-1]])
            self._known[key] = torch.stack(places[::-1], -1)
        found: Tensor = self._known[key]
        return found
