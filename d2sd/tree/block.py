"""A drafted block: what every drafter returns, and what trees are built from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

DrafterName = Literal["first", "second"]


@dataclass(frozen=True, slots=True)
class Block:
    """Drafted tokens below the anchor, after ``prefix`` given ones of candidate ``base`` (see ``trace.events.Draft``).

    confidence[j]: drafter's probability of ids[j]; tokens[j], probabilities[j]: its most likely tokens there, best
    first, as many as were asked for.
    """

    drafter: DrafterName
    prefix: int
    ids: tuple[int, ...]
    confidence: tuple[float, ...]
    tokens: Sequence[Sequence[int]]
    probabilities: Sequence[Sequence[float]]
    base: int = 0
