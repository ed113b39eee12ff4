"""The token tree: candidates merged at equal prefixes, rooted at the anchor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Node 0 is the anchor; a parent always comes before its children.

    tokens, parents, depths: one entry a node (the anchor's parent is −1, its depth 0);
    candidates: for every node the numbers of the candidates that run through it, ascending.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    candidates: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.tokens)

    def ancestor_mask(self) -> np.ndarray:
        """(N, N) bool: entry [n, m] is True when m is n or an ancestor of n."""
        mask = np.zeros((len(self), len(self)), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                mask[node] = mask[parent]
            mask[node, node] = True
        return mask

    def children(self) -> list[dict[int, int]]:
        """For every node its children as token → node."""
        out: list[dict[int, int]] = [{} for _ in self.tokens]
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                out[parent][self.tokens[node]] = node
        return out

    def path(self, node: int) -> tuple[int, ...]:
        """Nodes from the anchor (excluded) down to ``node`` (included)."""
        nodes = []
        while node > 0:
            nodes.append(node)
            node = self.parents[node]
        return tuple(reversed(nodes))


def merge_candidates(anchor: int, candidates: Sequence[Sequence[int]]) -> TokenTree:
    """Merge candidate continuations of the anchor: every distinct prefix becomes one node."""
    tokens, parents, depths = [anchor], [-1], [0]
    through: list[list[int]] = [list(range(len(candidates)))]
    known: dict[tuple[int, int], int] = {}
    for number, candidate in enumerate(candidates):
        parent = 0
        for token in candidate:
            node = known.get((parent, token))
            if node is None:
                node = known[parent, token] = len(tokens)
                tokens.append(token)
                parents.append(parent)
                depths.append(depths[parent] + 1)
                through.append([])
            through[node].append(number)
            parent = node
    return TokenTree(tuple(tokens), tuple(parents), tuple(depths), tuple(map(tuple, through)))
