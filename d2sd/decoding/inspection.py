"""Data that is recorded for a step besides its tokens: the target's probabilities at every tree node, and a drafter's probabilities
at other temperatures. They are computed on the device and converted to the data of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from d2sd.methods import Proposal
from d2sd.trace.events import (
    TEMPERATURES,
    Alternative,
    Choice,
    Draft,
    DraftLevel,
    Draw,
    Node,
    TargetTop,
)
from d2sd.trace.text import TokenTexts
from d2sd.tree.block import Block
from d2sd.tree.levels import continued_nodes
from d2sd.tree.walk import TreeWalk

TOP_ALTERNATIVES = 5  # alternatives per position
MEASURED = 4  # rows of ``measure`` before the likeliest tokens
DIGITS = 6  # decimal digits of probabilities that are only displayed, to shorten traces
# Lower limit of scores relative to the best one, in nats. Lower scores are negligible, and their powers would be subnormal
# numbers, which are slow.
FAR = -43.0


class Inspection(NamedTuple):
    """The target's outputs at the nodes of a tree, with one entry per node. Without inspection, all fields except ``chosen`` are
    None.

    chosen: the target's choice after the node.
    choice_probability: the target's probability of that choice.
    probability: the target's probability of the node's token, given its parent; undefined for the anchor.
    rank: rank of the node's token among the target's probabilities, from 0 for the likeliest; undefined for the anchor.
    top: the target's likeliest tokens after the node and their probabilities, best first.
    """

    chosen: list[int]
    choice_probability: list[float] | None = None
    probability: list[float] | None = None
    rank: list[int] | None = None
    top: list[tuple[tuple[int, ...], tuple[float, ...]]] | None = None

    @classmethod
    def read(cls, columns: Sequence[list[float]]) -> Inspection:
        """Returns the inspection, given the rows of the result of ``measure`` on the host."""
        chosen = [int(c) for c in columns[0]]
        if len(columns) == 1:
            return cls(chosen)
        half = (len(columns) + MEASURED) // 2
        tokens = zip(*(map(int, row) for row in columns[half:]), strict=True)
        top = list(zip(tokens, zip(*columns[MEASURED:half], strict=True), strict=True))
        return cls(chosen, columns[1], columns[2], [int(r) for r in columns[3]], top)


def measured_rows(inspect: bool, vocabulary: int) -> int:
    return MEASURED + 2 * min(TOP_ALTERNATIVES, vocabulary) if inspect else 1


def measure(scores: Tensor, chosen: Tensor, tokens: Tensor, parents: Tensor, inspect: bool) -> Tensor:
    """Returns the choices, (1, N) float64; if ``inspect``, all fields of ``Inspection``, (``measured_rows``, N) float64.

    The last rows are the probabilities of the likeliest tokens, and then the ids of these tokens. Probabilities are rounded to
    ``DIGITS`` digits, since they are only displayed. A choice is replaced by −1 if its score is NaN or +inf, which argmax prefers.

    scores: (N, V) logits from which the choices were made.
    chosen: (N,) the choices.
    tokens: (N,) the nodes' tokens.
    parents: (N,) the nodes' parents; 0 for the anchor.
    """
    sure = torch.where(scores.gather(1, chosen[:, None])[:, 0].isfinite(), chosen, -1)
    if not inspect:
        return sure.double()[None]
    best = scores.topk(min(TOP_ALTERNATIVES, scores.shape[-1]), dim=-1).indices
    index = parents * scores.shape[-1] + tokens
    own_scores = scores.flatten().index_select(0, index)
    everything = scores.log_softmax(-1, dtype=torch.float32)
    logs = (
        everything.gather(1, chosen[:, None]),
        everything.flatten().index_select(0, index)[:, None],
        everything.gather(1, best),
    )
    choice, ours, likeliest = (x.clamp_max(0.0).double().exp().round(decimals=DIGITS).T for x in logs)
    rank = (scores.index_select(0, parents) > own_scores[:, None]).view(torch.int8).sum(-1, dtype=torch.int32)
    return torch.cat([sure.double()[None], choice, ours, rank.double()[None], likeliest, best.T.double()])


def tempered(scores: Tensor, indices: Tensor) -> Tensor:
    """Returns the probability of one token per row at each of ``TEMPERATURES``, (M, len(TEMPERATURES)) float64.

    scores: (M, V) logits or log probabilities of all tokens.
    indices: (M,) indices of the tokens.
    """
    # few exponentials: squaring exp(s / T) halves T, so two temperatures give all powers of √2
    scores = scores.float()
    below = (scores - scores.max(-1, keepdim=True).values).clamp_min_(FAR)
    probabilities = {}
    for temperature in TEMPERATURES[-2:]:
        everything = (below / temperature).exp_()
        ours = everything.gather(1, indices[:, None])
        while temperature >= TEMPERATURES[0]:
            probabilities[temperature] = ours[:, 0] / everything.sum(-1)
            everything, ours, temperature = everything.mul_(everything), ours.mul_(ours), temperature / 2
    return torch.stack([probabilities[t] for t in TEMPERATURES], -1).double().clamp_max_(1).round(decimals=DIGITS)


def rows_of(array: Tensor | np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, array.tolist()))


def describe_draws(
    scores: Tensor, noise: Tensor, proposal: Proposal, seen: Inspection, outcome: TreeWalk, texts: TokenTexts
) -> tuple[Draw, ...]:
    """Returns the target's random draw at every visited node.

    scores: (N, V) logits that the choices were made from.
    noise: (depths, V), as for ``Sampler.choose``.
    """
    tree, draws = proposal.tree, []
    for node in outcome.visited:
        below = [n for n in range(node + 1, len(tree)) if tree.parents[n] == node]
        listed = seen.top[node][0] if seen.top else ()
        tokens = tuple(dict.fromkeys([seen.chosen[node], *listed, *(tree.tokens[n] for n in below)]))
        gumbel = noise[tree.depths[node]][torch.tensor(tokens, device=noise.device)].tolist()
        draw = Draw(node, tokens, tuple(round(g, DIGITS) for g in gumbel))
        wrong = [n for n in below if tree.tokens[n] != seen.chosen[node] and tree.candidates[n]]
        block = proposal.blocks[tree.candidates[wrong[0]][0]] if wrong else None
        if block is not None and block.whole is not None:
            excess = scores[node].softmax(-1)
            drafted = block.whole(tree.depths[node] - block.prefix).to(excess.device)[: len(excess)]
            excess[: len(drafted)] -= drafted  # one of the two vocabularies may be padded
            excess.clamp_min_(0)
            best = (excess / excess.sum()).topk(min(TOP_ALTERNATIVES, len(excess)))
            likely = [round(p, DIGITS) for p in best.values.tolist() if p > 0]
            residual = _alternatives(best.indices[: len(likely)].tolist(), likely, texts)
            draw = Draw(node, tokens, draw.noise, wrong[0], residual)
        draws.append(draw)
    return tuple(draws)


def _alternatives(tokens: Sequence[int], shown: Iterable[float], texts: TokenTexts) -> tuple[Alternative, ...]:
    return tuple(map(Alternative, tokens, map(texts.__getitem__, tokens), shown))


def describe_draft(block: Block, texts: TokenTexts, inspect: bool) -> Draft:
    """Returns a drafted block as event data, with the alternatives at each position if ``inspect``."""
    listed = zip(block.tokens, block.probabilities, strict=True) if inspect else ()
    return Draft(
        drafter=block.drafter,
        prefix=block.prefix,
        ids=block.ids,
        texts=tuple(map(texts.__getitem__, block.ids)),
        confidence=block.confidence,
        alternatives=tuple(
            _alternatives(t[:TOP_ALTERNATIVES], map(round, q[:TOP_ALTERNATIVES], repeat(DIGITS)), texts)
            for t, q in listed
        ),
        base=block.base,
    )


def describe_choices(seen: Inspection, outcome: TreeWalk, texts: TokenTexts) -> tuple[Choice, ...]:
    """Returns the target's choices at the visited nodes."""
    return tuple(
        Choice(
            n,
            seen.chosen[n],
            texts[seen.chosen[n]],
            seen.choice_probability[n] if seen.choice_probability else None,
        )
        for n in outcome.visited
    )


def describe_tops(proposal: Proposal, seen: Inspection, outcome: TreeWalk, texts: TokenTexts) -> tuple[TargetTop, ...]:
    """Returns the target's likeliest tokens after every node that has children or was visited by the walk; nothing without
    inspection.
    """
    if seen.top is None:
        return ()
    tops = []
    for node in sorted({*proposal.tree.parents[1:], *outcome.visited}):
        likely = [pair for pair in zip(*seen.top[node], strict=True) if pair[1] > 0]
        tokens, shown = zip(*likely, strict=True) if likely else ((), ())
        tops.append(TargetTop(node, _alternatives(tokens, shown, texts)))
    return tuple(tops)


def describe_nodes(proposal: Proposal, seen: Inspection, outcome: TreeWalk, texts: TokenTexts) -> tuple[Node, ...]:
    """Returns all nodes of the tree with their state after the walk."""
    tree = proposal.tree
    accepted, visited = set(outcome.accepted), set(outcome.visited)
    drafters = [block.drafter for block in proposal.blocks] or ["first"]
    states = (
        "accepted" if n in accepted else "rejected" if tree.parents[n] in visited else "unreached"
        for n in range(1, len(tree))
    )
    nodes = map(  # positional, in the order of the fields, for speed: trees are large
        Node,
        range(len(tree)),
        tree.parents,
        tree.depths,
        tree.tokens,
        map(texts.__getitem__, tree.tokens),
        tree.candidates,
        ("target", *(drafters[block] for block in tree.blocks[1:])),
        ("root", *states),
        (None, *tree.probabilities[1:]),
        (None, *seen.probability[1:]) if seen.probability else repeat(None),
        (None, *seen.rank[1:]) if seen.rank else repeat(None),
    )
    return tuple(nodes)


def describe_levels(proposal: Proposal, texts: TokenTexts) -> tuple[DraftLevel, ...]:
    """Returns the levels of a draft tree as event data. The tree's nodes were selected from the candidates of these levels."""
    nodes = continued_nodes(proposal.tree, proposal.levels)
    return tuple(
        DraftLevel(
            ids=tuple(level.tokens[index] for index in level.continued),
            texts=tuple(texts[level.tokens[index]] for index in level.continued),
            parents=tuple(level.parents[index] for index in level.continued),
            scores=tuple(round(level.scores[index], DIGITS) for index in level.continued),
            nodes=tuple(row),
            scored=len(level.tokens),
        )
        for level, row in zip(proposal.levels, nodes, strict=True)
    )
