"""The walk over a token tree, which finds the nodes that the target accepts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from d2sd.tree.tree import TokenTree


class TreeWalk(NamedTuple):
    """The result of verifying one tree.

    visited: nodes where the target's choice was read, anchor first.
    accepted: nodes below the anchor whose tokens are committed.
    bonus: the target's choice at the last visited node if no child has this token, otherwise None.
    ended: whether an end token was committed.
    cut: whether the token limit stopped the walk.
    """

    visited: tuple[int, ...]
    accepted: tuple[int, ...]
    bonus: int | None
    ended: bool
    cut: bool


def walk(tree: TokenTree, chosen: Sequence[int], end_ids: Collection[int], limit: int) -> TreeWalk:
    """Follows the target's choices from the anchor down the tree. Returns the walk.

    It commits at most ``limit`` tokens, and none after an end token. The last token is the bonus token, unless an accepted node is
    an end token or reaches the limit.

    chosen: chosen[n] is the target's token after node n, given the path to n.
    end_ids: tokens that end the text.
    """
    children = tree.children()
    visited = [0]
    accepted: list[int] = []
    while True:
        token = chosen[visited[-1]]
        child = children.get((visited[-1], token))
        if child is None:
            return TreeWalk(tuple(visited), tuple(accepted), token, token in end_ids, len(accepted) + 1 == limit)
        accepted.append(child)
        if token in end_ids or len(accepted) == limit:
            return TreeWalk(tuple(visited), tuple(accepted), None, token in end_ids, len(accepted) == limit)
        visited.append(child)


def first_draft_boundary(tree: TokenTree, first: Sequence[int], chosen: Sequence[int], outcome: TreeWalk) -> int | None:
    """Returns how many leading tokens of the first draft the target accepted; None if the walk ended too early to know this.

    first: tokens of the first draft.
    chosen: as for ``walk``.
    """
    children, node, visited = tree.children(), 0, set(outcome.visited)
    for count, token in enumerate(first):
        if node not in visited:
            return None
        if chosen[node] != token:
            return count
        child = children.get((node, token))
        if child is None:  # the target chose this token, but the node budget had removed it from the tree
            return None
        node = child
    return len(first)


def agreed(draft: Sequence[int], text: Sequence[int]) -> int:
    """Returns the length of the longest common prefix of two token sequences."""
    pairs = zip(draft, text, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(draft), len(text)))
