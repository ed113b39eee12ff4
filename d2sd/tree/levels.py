"""Draft trees that grow level by level, and the token tree of their best nodes.

EAGLE-2, arXiv 2406.16858, section 4: a level consists of the k likeliest children of each of k nodes. Each child is scored by the
logarithm of its path's probability. The k best children are the parents of the next level. The best nodes of all levels are
verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import NamedTuple

from d2sd.tree.tree import TokenTree, TreeBuilder


class Level(NamedTuple):
    """The candidates that one pass scored.

    parents: for each candidate, the index of its parent in ``continued`` of the previous level; 0 in the first level.
    tokens: token ids of the candidates.
    scores: natural logarithms of the probabilities of the candidates' paths; never larger than the score of the parent.
    continued: indices of the candidates that the next level continues, best first.
    """

    parents: Sequence[int]
    tokens: Sequence[int]
    scores: Sequence[float]
    continued: Sequence[int]


def level_tree(anchor: int, levels: Sequence[Level], count: int) -> TokenTree:
    """Returns the tree of the anchor and the ``count`` best candidates of all levels.

    If scores are equal, candidates of earlier levels come first, then earlier candidates. No child has a higher score than its
    parent, so the selected candidates form a tree.
    """
    everyone = ((-s, depth, index) for depth, level in enumerate(levels) for index, s in enumerate(level.scores))
    taken = sorted((depth, index) for _, depth, index in sorted(everyone)[:count])
    builder, number = TreeBuilder(anchor), dict[tuple[int, int], int]()
    for depth, index in taken:
        level, above, score = levels[depth], 0, 0.0
        if depth:
            parent = levels[depth - 1].continued[level.parents[index]]
            above, score = number[depth - 1, parent], levels[depth - 1].scores[parent]
        probability = exp(min(0.0, level.scores[index] - score))
        number[depth, index] = builder.add(above, level.tokens[index], 0, probability)
    return builder.build([])


def continued_nodes(tree: TokenTree, levels: Sequence[Level]) -> list[list[int | None]]:
    """Returns, for each level, the tree nodes of the continued candidates, with None for a candidate that is not in the tree."""
    children = tree.children()
    out: list[list[int | None]] = []
    for level in levels:
        above = out[-1] if out else [0]
        row = []
        for index in level.continued:
            parent = above[level.parents[index]]
            row.append(None if parent is None else children.get((parent, level.tokens[index])))
        out.append(row)
    return out
