"""Best-first growth of a token tree over the per-position distributions of one or several block drafts.

DDTree, arXiv 2604.12989: pop the likeliest path from a heap, push its next sibling and its first child. Every path is
pushed by one that is at least as likely, so paths are popped in order of probability. Logarithms are
added, because products of very small probabilities underflow to 0. With several drafts, a path
takes its next token from the draft with the longest given prefix on it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import inf

from d2sd.tree.block import Block
from d2sd.tree.tree import TokenTree, TreeBuilder, chains


@dataclass(frozen=True, slots=True)
class Offer:
    """Candidates for the next token at one position, best first: tokens, their probabilities, the logarithms of these, and the
    draft of each."""

    tokens: Sequence[int]
    probabilities: Sequence[float]
    logs: Sequence[float]
    owners: Sequence[int]


def offers(block: Block, number: int) -> list[Offer]:
    """Returns the distributions of a draft, one offer per drafted position."""
    rows = zip(block.tokens, block.probabilities, block.scores, strict=True)
    return [Offer(t, p, s, [number] * len(t)) for t, p, s in rows]


def grow(
    anchor: int,
    blocks: Sequence[Block],
    offered: Sequence[Sequence[Offer]],
    budget: int,
    min_log_probability: float = -inf,
) -> TokenTree:
    """Returns the tree of the ``budget`` likeliest paths below the anchor.

    blocks: the drafts. A later one with the same prefix replaces an earlier one.
    offered: for each draft, the offers by position after its prefix. They do not depend on the tokens before, unless the draft
        has ``Block.after``.
    min_log_probability: minimum log probability of a path.
    """
    builder, whole = TreeBuilder(anchor), chains(blocks)
    # the given prefixes as a trie: (trie node, token) → trie node, and the draft that goes on after a trie node
    trie: dict[tuple[int, int], int] = {}
    source_at: dict[int, int] = {}
    for number, block in enumerate(blocks):
        at = 0
        for token in whole[number][: block.prefix]:
            at = trie.setdefault((at, token), len(trie) + 1)
        source_at[at] = number
    heap: list[tuple[float, int, float, int, int, int, int, int]] = []
    pushed = 0

    def follows(source: int, depth: int, parent: int) -> Offer | None:
        block, position = blocks[source], depth - blocks[source].prefix
        if position >= len(offered[source]):
            return None
        return offered[source][position] if block.after is None else known(source, position, builder.tokens[parent])

    @cache
    def known(source: int, position: int, before: int) -> Offer:
        after = blocks[source].after
        assert after is not None
        tokens, probabilities, logs = after(position, before)
        return Offer(tokens, probabilities, logs, [source] * len(tokens))

    def push(above: float, parent: int, depth: int, rank: int, source: int, at: int) -> None:
        """Offer the token of this rank at ``depth`` (0 = right below the anchor) below a path of this log probability."""
        nonlocal pushed
        offer = follows(source, depth, parent)
        if offer is not None and rank < len(offer.tokens):
            pushed += 1
            score = -above - offer.logs[rank]
            heapq.heappush(heap, (score, pushed, above, parent, depth, rank, source, at))

    push(0.0, 0, 0, 0, source_at[0], 0)
    while heap and len(builder.tokens) <= budget and -heap[0][0] >= min_log_probability:
        score, _, above, parent, depth, rank, source, at = heapq.heappop(heap)
        offer = follows(source, depth, parent)
        assert offer is not None
        token = offer.tokens[rank]
        node = builder.add(parent, token, offer.owners[rank], offer.probabilities[rank])
        push(above, parent, depth, rank + 1, source, at)
        below = trie.get((at, token), -1)
        push(-score, node, depth + 1, 0, source_at.get(below, source), below)
    return builder.build(whole)
