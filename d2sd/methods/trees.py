"""Methods that grow a token tree under a node budget: best first over block drafts (DDTree, D²SD's tree), or by levels (EAGLE-3).

Best-first growth (DDTree, arXiv 2604.12989) repeats these steps: remove the likeliest path from a heap, then add its next sibling
and its first child. Every path is added by a path that is at least as likely, so paths are removed in order of probability.
Logarithms are added, because products of very small probabilities underflow to 0. With several drafts, the next token of a path
comes from the draft whose prefix matches the path for the most tokens.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import cache, partial
from math import exp, inf, log
from typing import NamedTuple

from d2sd.methods.base import DEFAULT_BUDGET, ONE_DRAFT, TWO_DRAFTS, Drafters, FirstDraft, Method, draft_block
from d2sd.methods.d2sd import redraft_once, select_likeliest
from d2sd.tree.block import Block
from d2sd.tree.levels import level_tree
from d2sd.tree.tree import TokenTree, TreeBuilder, chains

TOP = 12  # number of likeliest tokens per position and drafter that D²SD's tree considers
# Exponents of the drafters' probabilities in their product, chosen on `tiny`: `git show 1e876e8:research/tiny/tree-log.md`.
SECOND, FIRST = 0.7, 0.3
UNLISTED = log(1e-3)  # log probability assumed for a token that one of the drafters does not list
EAGLE3_BUDGET = 59  # with the anchor 60, as in the authors' code


class Offer(NamedTuple):
    """The candidates for the token at one position, best first.

    logs: natural logarithms of ``probabilities``.
    owners: for each candidate, the number of the draft that it comes from.
    """

    tokens: Sequence[int]
    probabilities: Sequence[float]
    logs: Sequence[float]
    owners: Sequence[int]


def offers(block: Block, number: int) -> list[Offer]:
    """Returns the candidates of a draft, one ``Offer`` per drafted position.

    number: number of the draft.
    """
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

    blocks: the drafts. A later draft with the same prefix replaces an earlier one.
    offered: for each draft, the offers by position after its prefix. If a draft has ``Block.after``, this function gives the
        candidates instead, and only the number of offers is used.
    min_log_probability: minimum log probability of a path.
    """
    builder, whole = TreeBuilder(anchor), chains(blocks)
    # the prefixes of the drafts as a trie: (trie node, token) → trie node, and the draft that continues from a trie node
    trie: dict[tuple[int, int], int] = {}
    source_at = {}
    for number, block in enumerate(blocks):
        trie_node = 0
        for token in whole[number][: block.prefix]:
            trie_node = trie.setdefault((trie_node, token), len(trie) + 1)
        source_at[trie_node] = number
    heap: list[tuple[float, int, float, int, int, int, int, int]] = []
    pushed = 0

    def follows(source: int, depth: int, parent: int) -> Offer | None:
        block, position = blocks[source], depth - blocks[source].prefix
        if position >= len(offered[source]):
            return None
        return (
            offered[source][position]
            if block.after is None
            else given_previous(source, position, builder.tokens[parent])
        )

    @cache
    def given_previous(source: int, position: int, before: int) -> Offer:
        after = blocks[source].after
        assert after is not None
        tokens, probabilities, logs = after(position, before)
        return Offer(tokens, probabilities, logs, [source] * len(tokens))

    def push(above: float, parent: int, depth: int, rank: int, source: int, trie_node: int) -> None:
        """Adds the candidate of this rank at ``depth`` (0 = directly below the anchor) to the heap. ``above`` is the log
        probability of the path to its parent.
        """
        nonlocal pushed
        offer = follows(source, depth, parent)
        if offer is not None and rank < len(offer.tokens):
            pushed += 1
            score = -above - offer.logs[rank]
            heapq.heappush(heap, (score, pushed, above, parent, depth, rank, source, trie_node))

    push(0.0, 0, 0, 0, source_at[0], 0)
    while heap and len(builder.tokens) <= budget and -heap[0][0] >= min_log_probability:
        score, _, above, parent, depth, rank, source, trie_node = heapq.heappop(heap)
        offer = follows(source, depth, parent)
        assert offer is not None
        token = offer.tokens[rank]
        node = builder.add(parent, token, offer.owners[rank], offer.probabilities[rank])
        push(above, parent, depth, rank + 1, source, trie_node)
        below = trie.get((trie_node, token), -1)
        push(-score, node, depth + 1, 0, source_at.get(below, source), below)
    return builder.build(whole)


def merge_likeliest(drafters: Drafters, draft: FirstDraft, redrafts: Sequence[Block]) -> TokenTree:
    """Returns the tree of the B likeliest paths, as if the positions of the block were independent (B: the node budget)."""
    assert draft.block is not None
    offered = [offers(draft.block, 0)]
    return grow(drafters.anchor, [draft.block], offered, drafters.budget, drafters.min_log_probability)


def merge_agreed(drafters: Drafters, draft: FirstDraft, redrafts: Sequence[Block]) -> TokenTree:
    """Returns the tree of the B likeliest paths over both drafters (B: the node budget).

    After a re-drafted prefix, a token's probability is a weighted product of both drafters' probabilities, because neither
    drafter's probabilities are reliable if the drafters disagree. On all other paths, it is the first drafter's probability.
    """
    assert draft.block is not None
    first = draft.block
    offered = [offers(first, 0), *(agreed(first, b, n) for n, b in enumerate(redrafts, 1))]
    return grow(drafters.anchor, [first, *redrafts], offered, drafters.budget, drafters.min_log_probability)


def agreed(first: Block, second: Block, number: int) -> list[Offer]:
    """Returns the candidates of a re-draft, one ``Offer`` per position, with probabilities on which both drafters agree.

    They are the weighted product of both drafters' probabilities, normalised over the tokens that the drafters list. A token is
    attributed to the draft in which it has the higher probability. After the end of the first block, only the second drafter's
    probabilities are used.

    number: number of the re-draft.
    """
    out, first_scores, second_scores = offers(second, number), first.scores, second.scores
    for position, first_position in enumerate(range(second.prefix, len(first.ids))):
        by_first = dict(zip(first.tokens[first_position], first_scores[first_position], strict=True))
        by_second = dict(zip(second.tokens[position], second_scores[position], strict=True))
        weight = {
            t: SECOND * by_second.get(t, UNLISTED) + FIRST * by_first.get(t, UNLISTED)
            for t in {**by_second, **by_first}
        }
        tokens = sorted(weight, key=lambda t: -weight[t])
        best = weight[tokens[0]]
        total = best + log(sum(exp(w - best) for w in weight.values()))
        logs = [min(0.0, weight[t] - total) for t in tokens]
        owners = [0 if by_first.get(t, -inf) > by_second.get(t, -inf) else number for t in tokens]
        out[position] = Offer(tokens, [exp(s) for s in logs], logs, owners)
    return out


def draft_levels(drafters: Drafters) -> FirstDraft:
    """Drafts a tree that grows level by level, with one pass per level."""
    return FirstDraft(levels=drafters.levels())


def merge_levels(drafters: Drafters, draft: FirstDraft, redrafts: Sequence[Block]) -> TokenTree:
    return level_tree(drafters.anchor, draft.levels, drafters.budget)


DDTREE = Method(
    "ddtree",
    "DDTree",
    "A tree of the B likeliest paths over the first drafter's per-position distributions, grown best first.",
    "DDTree, arXiv 2604.12989",
    ONE_DRAFT,
    lambda drafters: draft_block(drafters, drafters.width),
    merge=merge_likeliest,
    default_budget=DEFAULT_BUDGET,
)
D2SD_TREE = Method(
    "d2sd_tree",
    "D²SD as a tree",
    "A tree of the B likeliest paths over both drafters, grown best first from the re-drafted prefixes.",
    "this project, after D²SD and DDTree",
    TWO_DRAFTS,
    partial(draft_block, top=TOP),
    select_likeliest,
    partial(redraft_once, top=TOP),
    merge_agreed,
    second_drafter="vp",
    draft_levels=2,
    default_budget=DEFAULT_BUDGET,
)
EAGLE3 = Method(
    "eagle3",
    "EAGLE-3",
    "A one-layer drafter reads the target's features; its draft tree grows by one level per pass.",
    "EAGLE-3, arXiv 2503.01840",
    frozenset({"draft_depth", "draft_top_k", "node_budget", "cost_aware"}),
    draft_levels,
    merge=merge_levels,
    first_drafter=False,
    eagle3=True,
    default_budget=EAGLE3_BUDGET,
)
