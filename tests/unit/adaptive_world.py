"""A simulated text, drafters and machine on which decisions can be checked without a model.

Whether a drafter predicts a token depends only on the text's fields and the position, so every setting sees the same text.
Drafters are more often right when they are confident.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

from d2sd.costs.machines import Curve, StageCosts
from d2sd.decoding.cost_aware import Controller
from d2sd.methods import FirstDraft, Proposal
from d2sd.tree.boundary import boundary_posterior, select_prefixes
from d2sd.tree.tree import TokenTree, TreeBuilder
from d2sd.tree.walk import TreeWalk
from tests.unit.drafts import block, merge_candidates

GAMMA = 16
CPU = StageCosts(  # roughly two cores and a small model
    Curve(((4, 1.2e-3), (16, 2.2e-3))),
    Curve(((16, 2.6e-3), (64, 6.5e-3), (128, 11e-3))),
    Curve(((1, 5.0e-3), (2, 5.8e-3), (16, 8.5e-3), (64, 17e-3))),
    0.2e-3,
)
GPU = StageCosts(  # a large model: additional rows are nearly free
    Curve(((16, 4.5e-3),)), Curve(((16, 4.5e-3), (64, 4.9e-3))), Curve(((1, 22e-3), (64, 23e-3))), 0.5e-3
)


@dataclass(frozen=True)
class Text:
    """right: how often drafters are right at depth 1; depth: factor of this share for every further token.

    honest: exponent of their confidence, below 1 if they are over-confident; second: factor for a re-draft's first token.
    """

    right: float
    depth: float = 0.95
    honest: float = 1.0
    second: float = 0.6
    seed: int = 0
    tokens: int = 300


@cache
def draft(text: Text, position: int, second: bool = False) -> tuple[list[float], int]:
    """Confidences of the draft at a position, and how many of its tokens are accepted."""
    rng = random.Random((text.seed * 3 + second) * 100_003 + position)
    confidence, accepted, alive = [], 0, True
    for k in range(GAMMA - 1):
        p = min(0.999, (text.second if second and not k else 1.0) * text.right * text.depth**k)
        right = 1 / (1 + (1 / p - 1) * math.exp(-1.2 * rng.gauss(0, 1)))
        confidence.append(right**text.honest)
        alive = rng.random() < right and alive
        accepted += alive
    return confidence, accepted


Place = tuple[int, int]  # a node: prefix of its re-draft (−1: first draft), and depth


@cache
def tree(text: Text, position: int, size: int, branches: tuple[int, ...]) -> tuple[TokenTree, dict[int, Place]]:
    """The tree of all drafts, without equal tokens in two drafts, and the place of every token in it."""
    builder, nodes = TreeBuilder(0), {(-1, 0): 0}
    for number, prefix in enumerate((-1, *branches)):
        begin = max(0, prefix)
        parent = nodes[-1, begin]
        confidence = draft(text, position + begin, prefix >= 0)[0][: size - 1 - begin]
        for depth, c in enumerate(confidence, begin + 1):
            parent = nodes[prefix, depth] = builder.add(parent, len(nodes), number, c)
    return builder.build([]), {node: place for place, node in nodes.items()}


def accepted(text: Text, position: int, size: int, branches: Sequence[int], places: Collection[Place]) -> list[Place]:
    """Places of the accepted tokens, given the places of all verified tokens; the first draft's come first."""
    boundary = min(draft(text, position)[1], size - 1)
    gained = min(draft(text, position + boundary, True)[1], size - 1 - boundary) if boundary in branches else 0
    path = [(-1, 1 + d) for d in range(boundary)] + [(boundary, boundary + 1 + d) for d in range(gained)]
    return list(takewhile(places.__contains__, path))


@cache
def likeliest(text: Text, position: int, size: int, count: int) -> tuple[int, ...]:
    return select_prefixes(boundary_posterior(draft(text, position)[0][: size - 1]).posterior, min(count, size - 1))


def fixed(text: Text, table: StageCosts, size: int, branches: int, budget: int) -> list[tuple[int, float]]:
    """(tokens, seconds) of every step with a fixed setting; size 0 means plain decoding."""
    out, position = [], 0
    while position < text.tokens:
        step = 1, table.plain()
        if size:
            selected = likeliest(text, position, size, branches) if branches else ()
            whole, places = tree(text, position, size, selected)
            kept = whole.keep(budget)
            seconds = table.first_draft.seconds(size) + table.verify.seconds(len(kept)) + table.other
            seconds += table.second_draft.seconds(len(selected) * size) if selected else 0.0
            step = 1 + len(accepted(text, position, size, selected, {places[t] for t in kept.tokens})), seconds
        out.append(step)
        position += step[0]
    return out


def adaptive(text: Text, table: StageCosts, controller: Controller, branches: int) -> list[tuple[int, float]]:
    """(tokens, seconds) of every step with a controller. It observes times with noise; the returned seconds are exact."""
    out, position, clock = [], 0, random.Random(text.seed)
    while position < text.tokens:
        size, seconds = controller.begin(), table.other
        selected: tuple[int, ...] = ()
        kept, right, boundary = merge_candidates(0, []), list[Place](), None
        if size:
            if branches:
                first = block([0] * (size - 1), draft(text, position)[0][: size - 1])
                selected = tuple(controller.worthwhile(FirstDraft(first), likeliest(text, position, size, branches)))
            whole, places = tree(text, position, size, selected)
            kept = controller.prune(whole)
            right = accepted(text, position, size, selected, {places[t] for t in kept.tokens})
            boundary = min(draft(text, position)[1], size - 1)
            if boundary > sum(prefix < 0 for prefix, _ in right):
                boundary = None  # the tree lacks a token of the first draft
        for stage, rows in (("first_draft", size), ("second_draft", len(selected) * size), ("verify", len(kept))):
            if rows:
                seconds += getattr(table, stage).seconds(rows)
                noise = math.exp(0.2 * max(-2.0, min(2.0, clock.gauss(0, 1))))
                controller.costs.observe(stage, rows, getattr(table, stage).seconds(rows) * noise)
        nodes = tuple(n for n, token in enumerate(kept.tokens) if token and places[token] in right)
        controller.learn(Proposal(kept), TreeWalk((), nodes, None, False, False), boundary)
        out.append((1 + len(right), seconds))
        position += out[-1][0]
    return out


def rate(steps: Sequence[tuple[int, float]]) -> float:
    """Tokens per second."""
    return sum(t for t, _ in steps) / sum(s for _, s in steps)
