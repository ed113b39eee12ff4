"""What the target thought of every node of a tree, read from the device in one copy, and its description."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from d2sd.drafting import Block
from d2sd.events import Alternative, Choice, Draft, Node, State
from d2sd.methods import Proposal
from d2sd.text import TokenTexts
from d2sd.tree import TokenTree
from d2sd.verify import Walk

TOP = 5  # alternatives a position
DIGITS = 6  # of probabilities that are only shown: shorter traces


def _rounded(values: list[float]) -> list[float]:
    return [round(v, DIGITS) for v in values]


@dataclass(frozen=True, slots=True)
class Inspection:
    """Per node: the target's choice there and, if inspected, its probability, and this node's own probability
    and rank given its parent (0 = favourite; entry 0, the anchor's, means nothing)."""

    chosen: list[int]
    choice_probability: list[float] | None = None
    probability: list[float] | None = None
    rank: list[int] | None = None

    @classmethod
    def read(cls, scores: Tensor, chosen: Tensor, tree: TokenTree, inspect: bool) -> Inspection:
        """scores: (N, V) logits that the choice was made from; chosen: (N,) token ids."""
        if not inspect:
            return cls(chosen.tolist())
        parents = torch.tensor((0, *tree.parents[1:]), device=scores.device)
        tokens = torch.tensor(tree.tokens, device=scores.device)
        probabilities = scores.softmax(-1)
        better = scores.index_select(0, parents) > scores[parents, tokens][:, None]
        columns = [
            chosen,
            probabilities.gather(1, chosen[:, None])[:, 0],
            probabilities[parents, tokens],
            better.sum(-1, dtype=torch.int32),
        ]
        picked, choice_probability, probability, rank = torch.stack([c.double() for c in columns]).tolist()
        return cls(
            [int(c) for c in picked], _rounded(choice_probability), _rounded(probability), [int(r) for r in rank]
        )


def describe_draft(block: Block, texts: TokenTexts, inspect: bool) -> Draft:
    """A drafted block as event data, with its alternatives if inspected."""
    alternatives: tuple[tuple[Alternative, ...], ...] = ()
    if inspect:
        alternatives = tuple(
            tuple(Alternative(i, texts[i], round(p, DIGITS)) for i, p in zip(t[:TOP], q[:TOP], strict=True))
            for t, q in zip(block.tokens, block.probabilities, strict=True)
        )
    pieces = tuple(texts[i] for i in block.ids)
    return Draft(block.drafter, block.prefix, block.ids, pieces, block.confidence, alternatives, block.base)


def describe_choices(seen: Inspection, outcome: Walk, texts: TokenTexts) -> tuple[Choice, ...]:
    """The target's choices at the visited nodes."""
    return tuple(
        Choice(
            n, seen.chosen[n], texts[seen.chosen[n]], seen.choice_probability[n] if seen.choice_probability else None
        )
        for n in outcome.visited
    )


def describe_nodes(proposal: Proposal, seen: Inspection, outcome: Walk, texts: TokenTexts) -> tuple[Node, ...]:
    """All nodes of the tree with their state after the walk."""
    tree = proposal.tree
    accepted, visited = set(outcome.accepted), set(outcome.visited)
    drafters = [block.drafter for block in proposal.blocks]
    nodes = [
        Node(0, -1, 0, tree.tokens[0], texts[tree.tokens[0]], tree.candidates[0], "target", "root", None, None, None)
    ]
    for n in range(1, len(tree)):
        parent = tree.parents[n]
        state: State = "accepted" if n in accepted else "rejected" if parent in visited else "unreached"
        nodes.append(
            Node(
                n,
                parent,
                tree.depths[n],
                tree.tokens[n],
                texts[tree.tokens[n]],
                tree.candidates[n],
                drafters[tree.blocks[n]],
                state,
                tree.probabilities[n],
                seen.probability[n] if seen.probability else None,
                seen.rank[n] if seen.rank else None,
            )
        )
    return tuple(nodes)
