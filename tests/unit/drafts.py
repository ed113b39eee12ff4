"""Hand-made and random drafts and trees."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from d2sd.tree.block import Block
from d2sd.tree.tree import TokenTree, TreeBuilder, merge_drafts


def block(ids: Sequence[int], confidence: Sequence[float] | None = None, prefix: int = 0, base: int = 0) -> Block:
    """A draft of these tokens; confidences of 1 by default."""
    confidence = tuple(confidence or [1.0] * len(ids))
    return Block("first", prefix, tuple(ids), confidence, [[i] for i in ids], [[c] for c in confidence], base)


def merge_candidates(anchor: int, candidates: Sequence[Sequence[int]]) -> TokenTree:
    """The token tree of these chains of tokens."""
    return merge_drafts(anchor, [block(c) for c in candidates])


def random_tree(rng: Random, size: int, deep: bool = False) -> TokenTree:
    """A random tree of ``size`` nodes; deep: the parent of a node is one of the two nodes before it."""
    builder = TreeBuilder(rng.randrange(300))
    while (count := len(builder.tokens)) < size:
        builder.add(rng.randrange(max(0, count - 2) if deep else 0, count), rng.randrange(300), 0, 0.5)
    return builder.build([])
