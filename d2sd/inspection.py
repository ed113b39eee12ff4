"""What the target thought of every node of a tree, read from the device in one copy, and its description."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from d2sd.drafting import Block
from d2sd.events import Alternative, Choice, Draft, Node, Proposer, State
from d2sd.methods import Proposal
from d2sd.text import TokenTexts
from d2sd.tree import TokenTree
from d2sd.verify import Walk

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
        mass = scores.logsumexp(-1)
        own = scores[parents, tokens]
        columns = [
            chosen,
            (scores.gather(1, chosen[:, None])[:, 0] - mass).exp(),
            (own - mass[parents]).exp(),
            (scores[parents] > own[:, None]).sum(-1),
        ]
        picked, choice_probability, probability, rank = torch.stack([c.double() for c in columns]).tolist()
        return cls(
            [int(c) for c in picked], _rounded(choice_probability), _rounded(probability), [int(r) for r in rank]
        )


def proposer(tree: TokenTree, node: int, second: Literal["first", "second"]) -> Proposer:
    """Who drafted a node: the first drafter where the first candidate runs through it, else the re-drafter."""
    return "first" if tree.candidates[node][0] == 0 else second


def describe_draft(drafter: Literal["first", "second"], block: Block, texts: TokenTexts) -> Draft:
    """A drafted block as event data."""
    alternatives = tuple(
        tuple(Alternative(i, texts[i], round(p, DIGITS)) for i, p in entry) for entry in block.alternatives
    )
    return Draft(drafter, block.prefix, block.ids, tuple(texts[i] for i in block.ids), block.confidence, alternatives)


def describe_choices(seen: Inspection, outcome: Walk, texts: TokenTexts) -> tuple[Choice, ...]:
    """The target's choices at the visited nodes."""
    return tuple(
        Choice(
            n, seen.chosen[n], texts[seen.chosen[n]], seen.choice_probability[n] if seen.choice_probability else None
        )
        for n in outcome.visited
    )


def describe_nodes(
    proposal: Proposal, second: Literal["first", "second"], seen: Inspection, outcome: Walk, texts: TokenTexts
) -> tuple[Node, ...]:
    """All nodes of the tree with their state after the walk."""
    tree = proposal.tree
    accepted, visited = set(outcome.accepted), set(outcome.visited)
    blocks = [] if proposal.first is None else [proposal.first, *proposal.branches]
    nodes = []
    for n, (token, parent, depth) in enumerate(zip(tree.tokens, tree.parents, tree.depths, strict=True)):
        state: State = "unreached"
        if n == 0:
            state = "root"
        elif n in accepted:
            state = "accepted"
        elif parent in visited:
            state = "rejected"
        nodes.append(
            Node(
                n,
                parent,
                depth,
                token,
                texts[token],
                tree.candidates[n],
                proposer(tree, n, second) if n else "target",
                state,
                _drafter_probability(blocks, tree.candidates[n], depth) if n else None,
                seen.probability[n] if n and seen.probability else None,
                seen.rank[n] if n and seen.rank else None,
            )
        )
    return tuple(nodes)


def _drafter_probability(blocks: list[Block], through: tuple[int, ...], depth: int) -> float | None:
    """Confidence of the first candidate that drafted (rather than was given) the token at this depth."""
    for number in through:
        at = depth - 1 - blocks[number].prefix
        if at >= 0:
            return blocks[number].confidence[at]
    return None
