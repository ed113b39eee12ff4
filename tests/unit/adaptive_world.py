"""A simulated text, drafters and machine on which decisions can be checked without a model.

Whether a drafter predicts a token depends only on the text's fields and the position, so every setting sees the same text.
Drafters are more often right when they are confident.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from d2sd.costs.machines import Curve, Machine
from d2sd.decoding.cost_aware import Controller
from d2sd.tree.boundary import boundary_posterior, select_prefixes

GAMMA = 16
CPU = Machine(  # roughly two cores and a small model
    Curve(((4, 1.2e-3), (16, 2.2e-3))),
    Curve(((16, 2.6e-3), (64, 6.5e-3), (128, 11e-3))),
    Curve(((1, 5.0e-3), (2, 5.8e-3), (16, 8.5e-3), (64, 17e-3))),
    0.2e-3,
)
GPU = Machine(  # a large model: additional rows are nearly free
    Curve(((16, 4.5e-3),)), Curve(((16, 4.5e-3), (64, 4.9e-3))), Curve(((1, 22e-3), (64, 23e-3))), 0.5e-3
)
Node = tuple[float, int, int]  # reach, prefix of its re-draft (−1: first draft), depth


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


def tree(text: Text, at: int, size: int, branches: Sequence[int], exponents: Sequence[float]) -> list[Node]:
    """Nodes of the merged drafts, likeliest first."""
    above, out = [1.0], []
    for depth, c in enumerate(draft(text, at)[0][: size - 1], 1):
        above.append(above[-1] * c ** exponents[0])
        out.append((above[-1], -1, depth))
    for prefix in branches:
        reach = above[prefix]
        for depth, c in enumerate(draft(text, at + prefix, True)[0][: size - 1 - prefix], prefix + 1):
            reach *= c ** exponents[1]
            out.append((reach, prefix, depth))
    return sorted(out, key=lambda node: (-node[0], node[2]))


def accepted(text: Text, at: int, size: int, branches: Sequence[int], verified: Sequence[Node]) -> tuple[int, int, int]:
    """Numbers of verified and accepted tokens of the first draft and the re-draft, and the first draft's boundary."""
    boundary = min(draft(text, at)[1], size - 1)
    gained = min(draft(text, at + boundary, True)[1], size - 1 - boundary) if boundary in branches else 0
    places = {(prefix, depth) for _, prefix, depth in verified}
    first = next((d for d in range(boundary) if (-1, d + 1) not in places), boundary)
    second = next((d for d in range(gained) if (boundary, boundary + d + 1) not in places), gained)
    return first, second if first == boundary else 0, boundary


@cache
def likeliest(text: Text, at: int, size: int, count: int) -> tuple[int, ...]:
    return select_prefixes(boundary_posterior(draft(text, at)[0][: size - 1]).posterior, min(count, size - 1))


def fixed(text: Text, table: Machine, size: int, branches: int, budget: int) -> list[tuple[int, float]]:
    """(tokens, seconds) of every step with a fixed setting; size 0 means plain decoding."""
    out, at = [], 0
    while at < text.tokens:
        step = 1, table.plain()
        if size:
            selected = likeliest(text, at, size, branches) if branches else ()
            nodes = tree(text, at, size, selected, (1.0, 1.0))[:budget]
            seconds = table.first_draft.seconds(size) + table.verify.seconds(1 + len(nodes)) + table.other
            seconds += table.second_draft.seconds(len(selected) * size) if selected else 0.0
            step = 1 + sum(accepted(text, at, size, selected, nodes)[:2]), seconds
        out.append(step)
        at += step[0]
    return out


def adaptive(text: Text, table: Machine, controller: Controller, branches: int) -> list[tuple[int, float]]:
    """(tokens, seconds) of every step with a controller. It observes times with noise; the returned seconds are exact."""
    out, at, clock = [], 0, random.Random(text.seed)
    while at < text.tokens:
        size, seconds = controller.begin(), table.other
        selected: tuple[int, ...] = ()
        nodes: list[Node] = []
        if size:
            if branches:
                selected = controller.redraft(draft(text, at)[0][: size - 1], likeliest(text, at, size, branches))
            nodes = tree(text, at, size, selected, controller.exponents)
            del nodes[controller.nodes([n[0] for n in nodes], [n[1] >= 0 for n in nodes], 64) :]
        for stage, rows in (("first_draft", size), ("second_draft", len(selected) * size), ("verify", 1 + len(nodes))):
            if rows:
                seconds += getattr(table, stage).seconds(rows)
                noise = math.exp(0.2 * max(-2.0, min(2.0, clock.gauss(0, 1))))
                controller.costs.observe(stage, rows, getattr(table, stage).seconds(rows) * noise)
        first, second, boundary = accepted(text, at, size, selected, nodes) if size else (0, 0, 0)
        controller.observe(first + second, second, boundary if size and first == boundary else None)
        out.append((1 + first + second, seconds))
        at += out[-1][0]
    return out


def rate(steps: Sequence[tuple[int, float]]) -> float:
    """Tokens per second."""
    return sum(t for t, _ in steps) / sum(s for _, s in steps)
