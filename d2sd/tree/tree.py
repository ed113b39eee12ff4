"""The token tree: all drafts of a step below their anchor. Drafts with equal prefixes share the nodes of these prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from d2sd.tree.block import Block


@dataclass(frozen=True, slots=True)
class TokenTree:
    """A token tree. Node 0 is the anchor; parents precede their children. All fields have one entry per node.

    parents: parent of the node; −1 for the anchor.
    depths: depth of the node; 0 for the anchor.
    blocks: number of the draft that proposed the node (0: the first draft; j ≥ 1: the j-th further draft); undefined for the
        anchor.
    probabilities: the drafter's probability of the token; 1 for the anchor.
    candidates: numbers of the drafts that contain the node, ascending.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    blocks: tuple[int, ...]
    probabilities: tuple[float, ...]
    candidates: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.tokens)

    def ancestor_mask(self) -> np.ndarray:
        """Returns an attention mask, (N, N) bool: mask[n, m] is True if m is n or an ancestor of n."""
        mask = np.zeros((len(self), len(self)), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                mask[node] = mask[parent]
            mask[node, node] = True
        return mask

    def children(self) -> dict[tuple[int, int], int]:
        """Returns the nodes below the anchor, by their parent and token."""
        return dict(zip(zip(self.parents[1:], self.tokens[1:], strict=True), range(1, len(self)), strict=True))

    def path(self, node: int) -> tuple[int, ...]:
        """Returns the nodes from the anchor (excluded) down to ``node`` (included)."""
        nodes = []
        while node > 0:
            nodes.append(node)
            node = self.parents[node]
        return tuple(reversed(nodes))

    def reach(self) -> list[float]:
        """Returns the estimated acceptance probability of every node: the product of probabilities along its path."""
        out = [1.0]
        for parent, probability in zip(self.parents[1:], self.probabilities[1:], strict=True):
            out.append(out[parent] * probability)
        return out

    def likeliest(self, reach: Sequence[float]) -> list[int]:
        """Returns the nodes below the anchor in descending order of ``reach``. If equal, the earlier node comes first.

        reach: for each node, a probability that is not larger than the probability of its parent.
        """
        return sorted(range(1, len(self)), key=reach.__getitem__, reverse=True)

    def keep(self, count: int, order: Sequence[int] | None = None) -> TokenTree:
        """Returns the tree of the anchor and the first ``count`` nodes of ``order``.

        order: nodes below the anchor, as ``likeliest`` orders them; None: they are ordered by ``reach()``.
        """
        if len(self) <= count + 1:
            return self
        order = self.likeliest(self.reach()) if order is None else order
        # a parent is never less likely than its children and comes before them, so these nodes are connected
        below = sorted(order[:count])
        rows = [0, *below]
        number = {old: new for new, old in enumerate(rows)}
        return TokenTree(
            tuple(self.tokens[n] for n in rows),
            (-1, *(number[self.parents[n]] for n in below)),
            tuple(self.depths[n] for n in rows),
            tuple(self.blocks[n] for n in rows),
            tuple(self.probabilities[n] for n in rows),
            tuple(self.candidates[n] for n in rows),
        )


class TreeBuilder:
    """A token tree under construction."""

    def __init__(self, anchor: int):
        self.tokens, self.parents, self.depths = [anchor], [-1], [0]
        self.blocks, self.probabilities = [0], [1.0]
        self._children: dict[tuple[int, int], int] = {}

    def add(self, parent: int, token: int, block: int, probability: float) -> int:
        """Returns the child of ``parent`` with this token, and creates it if it does not exist.

        block: number of the draft to which a new child is attributed.
        probability: the drafter's probability of the token.
        """
        node = self._children.get((parent, token))
        if node is None:
            node = self._children[parent, token] = len(self.tokens)
            self.tokens.append(token)
            self.parents.append(parent)
            self.depths.append(self.depths[parent] + 1)
            self.blocks.append(block)
            self.probabilities.append(probability)
        return node

    def build(self, candidates: Sequence[Sequence[int]]) -> TokenTree:
        """Returns the tree.

        candidates: token chains of all drafts, from which ``TokenTree.candidates`` is computed.
        """
        through: list[list[int]] = [[] for _ in self.tokens]
        through[0] = list(range(len(candidates)))
        for number, chain in enumerate(candidates):
            node: int | None = 0
            for token in chain:
                node = self._children.get((node or 0, token))
                if node is None:
                    break
                through[node].append(number)
        return TokenTree(
            tuple(self.tokens),
            tuple(self.parents),
            tuple(self.depths),
            tuple(self.blocks),
            tuple(self.probabilities),
            tuple(map(tuple, through)),
        )


def chains(blocks: Sequence[Any]) -> list[tuple[int, ...]]:
    """Returns the token chain of every draft below the anchor, including the draft's prefix.

    blocks: ``Block`` or ``trace.events.Draft``.
    """
    out: list[tuple[int, ...]] = []
    for block in blocks:
        prefix = out[block.base][: block.prefix] if block.prefix else ()
        out.append(prefix + block.ids)
    return out


def merge_drafts(anchor: int, blocks: Sequence[Block]) -> TokenTree:
    """Returns one tree of all drafts. Every distinct prefix becomes one node, attributed to the first draft that contains it."""
    builder, whole = TreeBuilder(anchor), chains(blocks)
    for number, (block, chain) in enumerate(zip(blocks, whole, strict=True)):
        node = 0
        for depth, token in enumerate(chain, 1):
            position = depth - 1 - block.prefix
            node = builder.add(node, token, number, block.confidence[position] if position >= 0 else 1.0)
    return builder.build(whole)


def path_tree(count: int) -> TokenTree:
    """Returns a chain of ``count`` nodes with arbitrary tokens, for timing."""
    parents, depths = tuple(range(-1, count - 1)), tuple(range(count))
    return TokenTree((0,) * count, parents, depths, (0,) * count, (1.0,) * count, ((),) * count)
