"""What a method is given and what it returns."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from d2sd.drafting import Block
from d2sd.tree import TokenTree

Draft = Callable[[Sequence[Sequence[int]]], list[Block]]


@dataclass(frozen=True, slots=True)
class Drafters:
    """The drafters at one step. ``first`` and ``second`` map prefixes below the anchor to drafted blocks."""

    anchor: int
    first: Draft
    second: Draft
    num_branches: int
    rng: random.Random


@dataclass(frozen=True, slots=True)
class Proposal:
    """A token tree and how it came about; ``first`` and ``posterior`` are None and () where nothing was drafted."""

    tree: TokenTree
    first: Block | None = None
    posterior: tuple[float, ...] = ()
    full_acceptance: float = 0.0
    selected: tuple[int, ...] = ()
    branches: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Method:
    """A way to draft. ``second_drafter`` says which network re-drafts, if any."""

    id: str
    sentence: str
    source: str
    propose: Callable[[Drafters], Proposal]
    first_drafter: bool = True
    second_drafter: Literal["none", "vp", "first"] = "none"
