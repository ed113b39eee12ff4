"""Draft trees that grow level by level, and the best part of them as a token tree.

EAGLE-2, arXiv 2406.16858, section 4: every level scores the k children of its k best nodes by the logarithm of the path's
probability. The next level continues from the k best of them. Of all scored nodes, the best are verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

from d2sd.tree.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Level:
    """The candidates scored by one pass.

    parents: indices into the continued candidates of the previous level; in the first level 0, the anchor.
    tokens: ids.
    scores: natural logarithms of the paths' probabilities, at most those of their parents.
    continued: indices of the candidates that the next level continues, best first.
    """

    parents: Sequence[int]
    tokens: Sequence[int]
    scores: Sequence[float]
    continued: Sequence[int]


def level_tree(anchor: int, levels: Sequence[Level], count: int) -> TokenTree:
    """Returns the tree of the anchor and the ``count`` best candidates of all levels, ties to the higher level, then the
    earlier candidate.

    No child scores higher than its parent, so the selected candidates form a tree.
    """
    everyone = ((-s, depth, at) for depth, level in enumerate(levels) for at, s in enumerate(level.scores))
    taken = sorted((depth, at) for _, depth, at in sorted(everyone)[:count])
    number = {place: node for node, place in enumerate(taken, 1)}
    tokens, parents, depths, probabilities = [anchor], [-1], [0], [1.0]
    for depth, at in taken:
        level, above, score = levels[depth], 0, 0.0
        if depth:
            parent = levels[depth - 1].continued[level.parents[at]]
            above, score = number[depth - 1, parent], levels[depth - 1].scores[parent]
        tokens.append(level.tokens[at])
        parents.append(above)
        depths.append(depth + 1)
        probabilities.append(exp(min(0.0, level.scores[at] - score)))
    size = len(tokens)
    return TokenTree(
        tuple(tokens), tuple(parents), tuple(depths), (0,) * size, tuple(probabilities), ((),) * size
    )  # fmt: skip


def continued_nodes(tree: TokenTree, levels: Sequence[Level]) -> list[list[int | None]]:
    """Returns by level the tree node of every continued candidate; None if it is not in the tree."""
    children = tree.children()
    out: list[list[int | None]] = []
    for level in levels:
        above: list[int | None] = out[-1] if out else [0]
        row: list[int | None] = []
        for at in level.continued:
            parent = above[level.parents[at]]
            row.append(None if parent is None else children.get((parent, level.tokens[at])))
        out.append(row)
    return out
