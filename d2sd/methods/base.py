"""What a method is given and what it returns."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from d2sd.tree.block import Block
from d2sd.tree.boundary import NOTHING_DRAFTED, Boundary
from d2sd.tree.tree import TokenTree, merge_drafts

SETTINGS = frozenset({"block_size", "second_block_size", "num_branches", "node_budget", "cost_aware"})
BRANCHED = SETTINGS - {"second_block_size"}


class DraftPass(Protocol):
    """Prefixes below the anchor → drafted blocks, with the ``top`` likeliest tokens of every position."""

    def __call__(self, prefixes: Sequence[Sequence[int]], top: int = 1) -> list[Block]: ...


@dataclass(frozen=True, slots=True)
class Drafters:
    """The drafters at one step.

    first: blocks of γ; second: blocks of γ₂; sample: blocks drawn from the distributions of the first draft;
    model: a chain of the autoregressive draft model; longer: γ₂ − γ; budget: node budget B of tree methods;
    end_ids: tokens that end a text, behind which nothing is drafted anew.
    """

    anchor: int
    first: DraftPass
    second: DraftPass
    sample: Callable[[int], list[Block]]
    model: Callable[[], Block]
    num_branches: int
    longer: int
    budget: int
    rng: random.Random
    end_ids: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """A token tree and how it came about; ``first`` is None where nothing was drafted.

    boundary: the estimate for the first draft that prefixes were selected by, where one was made.
    """

    tree: TokenTree
    first: Block | None = None
    boundary: Boundary = NOTHING_DRAFTED
    selected: tuple[int, ...] = ()
    branches: tuple[Block, ...] = ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All drafts by their number."""
        return () if self.first is None else (self.first, *self.branches)


@dataclass(frozen=True, slots=True)
class Method:
    """A way to draft. ``second_drafter`` says which network re-drafts, if any.

    settings: the fields of ``DecodeConfig`` that shape its trees; needs_budget: it cannot run without a node budget;
    on_device: how its tree comes about, where that is simple enough to be worked out on the device
    (``d2sd.decoding.device_cycle``): the anchor alone, a single chain, or re-drafts from the likeliest or from random prefixes.
    """

    id: str
    sentence: str
    source: str
    propose: Callable[[Drafters], Proposal]
    settings: frozenset[str]
    first_drafter: bool = True
    second_drafter: Literal["none", "vp", "first"] = "none"
    draft_model: bool = False
    needs_budget: bool = False
    on_device: Literal["anchor", "chain", "likeliest", "random"] | None = None


def random_order(rng: random.Random, positions: int) -> tuple[int, ...]:
    """The prefix lengths of a draft of ``positions`` tokens in random order."""
    return tuple(rng.sample(range(positions), positions))


def merged(
    anchor: int, first: Block, boundary: Boundary, selected: Sequence[int] = (), branches: Sequence[Block] = ()
) -> Proposal:
    """The proposal that merges a first draft and its re-drafts."""
    tree = merge_drafts(anchor, [first, *branches])
    return Proposal(tree, first, boundary, tuple(selected), tuple(branches))
