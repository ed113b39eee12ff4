"""A made-up text, drafters and machine on which decisions can be checked: everything is known, nothing is run.

A token has a difficulty. Whether a drafter finds it is decided once, by the text's own numbers, so that every setting
meets the same text; drafters are more often right where they are sure.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from d2sd.decoding.controller import Controller, Known
from d2sd.decoding.costs import CostTable, Curve
from d2sd.tree.boundary import boundary_posterior, select_prefixes

GAMMA = 16
Drafted = tuple[float, bool, int, int]  # reach, by the second drafter, prefix (−1: first draft), depth
CPU = CostTable(  # two cores and a small model, about
    Curve(((4, 1.2e-3), (16, 2.2e-3))),
    Curve(((16, 2.6e-3), (64, 6.5e-3), (128, 11e-3))),
    Curve(((1, 5.0e-3), (2, 5.8e-3), (16, 8.5e-3), (64, 17e-3))),
    0.2e-3,
)
GPU = CostTable(  # a large model: rows are nearly free
    Curve(((16, 4.5e-3),)),
    Curve(((16, 4.5e-3), (64, 4.9e-3))),
    Curve(((1, 22e-3), (64, 23e-3))),
    0.5e-3,
)


@dataclass(frozen=True)
class Part:
    """A stretch of text: how often drafters are right at depth 1, what every further token costs them, and how wrong
    they are about themselves (an exponent of their confidence: below 1 they are too sure)."""

    tokens: int
    right: float
    depth: float = 0.97
    honest: float = 1.0
    second: float = 0.6


EASY, MIDDLE, HARD = Part(400, 0.93), Part(400, 0.7, 0.95), Part(400, 0.2, 0.9)


class World:
    """Parts one behind the other, and a clock that is up to ``noise`` off, by chance."""

    def __init__(self, parts: Sequence[Part], table: CostTable, noise: float = 0.0, seed: int = 0):
        self.parts, self.table, self.noise = tuple(parts), table, noise
        self.seed = seed
        self.length = sum(p.tokens for p in parts)
        self.clock = random.Random(seed)
        self.slow = 1.0

    def first(self, position: int, size: int) -> tuple[list[float], int]:
        """Confidences, and the boundary, of a first draft behind an anchor at this position."""
        confidence, boundary = _drafted(self.parts, self.seed, 1, position)
        return confidence[: size - 1], min(boundary, size - 1)

    def second(self, position: int, boundary: int, size: int) -> tuple[list[float], int]:
        """Confidences, and accepted tokens if that is the true boundary, of a re-draft from a prefix of this length."""
        confidence, accepted = _drafted(self.parts, self.seed, 2, position + boundary)
        return confidence[: size - 1 - boundary], min(accepted, size - 1 - boundary)

    def sure(self, position: int) -> float:
        return _shift(
            _part(self.parts, position).right, 1.5 * random.Random(self.seed * 100_003 + position).gauss(0, 1)
        )

    def seconds(self, stage: str, rows: int) -> float:
        exact = self.table.curve(stage).seconds(rows) if rows else 0.0
        return exact * self.slow * math.exp(self.noise * max(-2.0, min(2.0, self.clock.gauss(0, 1))))


def _part(parts: tuple[Part, ...], position: int) -> Part:
    for p in parts:
        if position < p.tokens:
            return p
        position -= p.tokens
    return parts[-1]


@cache  # worlds of the same text differ in their machine and clock only
def _drafted(parts: tuple[Part, ...], seed: int, kind: int, position: int) -> tuple[list[float], int]:
    """Confidences and accepted tokens of the first (1) or a second (2) draft of the tokens from a position on."""
    rng = random.Random((seed * 3 + kind) * 100_003 + position)
    confidence, accepted, alive = [], 0, True
    held = _part(parts, position).second if kind == 2 else 1.0
    for k in range(GAMMA - 1):
        p = _part(parts, position + k)
        right = _shift((held if k == 0 else 1.0) * p.right * p.depth**k, 1.2 * rng.gauss(0, 1))
        confidence.append(min(1.0, right**p.honest))
        alive = rng.random() < right and alive
        accepted += alive
    return confidence, accepted


@cache
def likeliest(confidence: tuple[float, ...]) -> tuple[int, ...]:
    """All prefix lengths, the likeliest boundary first."""
    return select_prefixes(boundary_posterior(confidence).posterior, len(confidence))


def _shift(p: float, by: float) -> float:
    """A probability moved on the logistic scale."""
    p = min(max(p, 1e-6), 1 - 1e-6)
    return 1 / (1 + (1 / p - 1) * math.exp(-by))


def _tree(
    confidence: Sequence[float], redrafts: Sequence[tuple[int, list[float]]], exponents: tuple[float, float]
) -> list[Drafted]:
    """Nodes of the merged drafts, likeliest first."""
    (held, held_again), above, tree = exponents, [1.0], []
    for depth, c in enumerate(confidence, 1):
        above.append(above[-1] * c)
        tree.append((above[-1] ** held, False, -1, depth))
    for prefix, own in redrafts:
        alive = 1.0
        for depth, c in enumerate(own, prefix + 1):
            alive *= c
            tree.append((above[prefix] ** held * alive**held_again, True, prefix, depth))
    return sorted(tree, key=lambda n: (-n[0], n[3]))


def _accepted(kept: Sequence[Drafted], boundary: int, gained: int) -> tuple[int, int]:
    """Accepted tokens of the first draft and of the re-draft from its boundary, as far as they were verified."""
    whole = {(n[2], n[3]) for n in kept}
    first = second = 0
    while first < boundary and (-1, first + 1) in whole:
        first += 1
    while first == boundary and second < gained and (boundary, boundary + second + 1) in whole:
        second += 1
    return first, second


def run_fixed(world: World, size: int, branches: int, budget: int = 64) -> list[tuple[int, float]]:
    """(tokens, seconds) of every step of a fixed setting; size 0: plain decoding. Times are exact."""
    table, out, at = world.table, [], 0
    while at < world.length:
        if not size:
            out.append((1, table.plain()))
            at += 1
            continue
        confidence, boundary = world.first(at, size)
        seconds = table.first_draft.seconds(size) + table.other
        selected: tuple[int, ...] = ()
        if branches:
            selected = likeliest(tuple(confidence))[:branches]
            seconds += table.second_draft.seconds(branches * size)
        count = size - 1 + sum(size - 1 - i for i in selected)
        gained = world.second(at, boundary, size)[1] if boundary in selected else 0
        accepted = boundary + gained
        if count > budget:
            redrafts = [(i, world.second(at, i, size)[0]) for i in selected]
            kept = _tree(confidence, redrafts, (1.0, 1.0))[:budget]
            count, accepted = budget, sum(_accepted(kept, boundary, gained))
        out.append((accepted + 1, seconds + table.verify.seconds(1 + count)))
        at += accepted + 1
    return out


def run_adaptive(world: World, controller: Controller, branches: int, planned: bool = False) -> list[tuple[int, float]]:
    """The same under a controller, which is told noisy times; the seconds of a step are exact.

    planned: steps are queued as a whole, with all of their nodes.
    """
    table, out, at = world.table, [], 0

    def stage(name: str, rows: int) -> float:
        if not rows:
            return 0.0
        controller.costs.observe(name, rows, world.seconds(name, rows))
        return table.curve(name).seconds(rows) * world.slow

    while at < world.length:
        size, count = (
            controller.plan([k for k in (1, 2, 4, 8) if k <= branches]) if planned else (controller.begin(), 0)
        )
        first = second = nodes = 0
        boundary: int | None = None
        seconds = table.other * world.slow
        if size:
            confidence, boundary = world.first(at, size)
            seconds += stage("first_draft", size)
            prefixes = likeliest(tuple(confidence))[: min(branches, size - 1)]
            selected = prefixes[:count] if planned else controller.redraft(confidence, prefixes)
            seconds += stage("second_draft", len(selected) * size)
            tree = _tree(confidence, [(i, world.second(at, i, size)[0]) for i in selected], controller.exponents)
            reach, by_second = [n[0] for n in tree], [n[1] for n in tree]
            if planned:
                controller.planned(confidence, prefixes, selected, reach, by_second)
                nodes = len(tree)
            else:
                nodes = controller.nodes(reach, by_second, 512)
            gained = world.second(at, boundary, size)[1] if boundary in selected else 0
            first, second = _accepted(tree[:nodes], boundary, gained)
            boundary = boundary if first == boundary else None
        controller.decision()
        seconds += stage("verify", 1 + nodes)
        controller.costs.observe_other(not size, table.other)
        controller.observe(first + second, second, boundary, world.sure(at))
        out.append((first + second + 1, seconds))
        at += first + second + 1
    return out


def rate(steps: Sequence[tuple[int, float]]) -> float:
    """Tokens a second."""
    return sum(t for t, _ in steps) / sum(s for _, s in steps)


def fixed_settings(branches: int, budget: int | None = None) -> list[tuple[int, int, int]]:
    """(γ, K, B) of the settings that hindsight may choose from; γ = 0: plain decoding; budget: the only B."""
    plain = [(0, 0, 1)]
    if budget:
        return plain + [(g, min(k, g - 1), budget) for g in (4, 8, 16) for k in (0, 1, 2, 4, 8) if k <= branches]
    if not branches:
        return plain + [(g, 0, 16) for g in (4, 8, 16)]
    return plain + [(g, min(k, g - 1), b) for g in (4, 8, 16) for k in (0, 1, 2, 4, 8) for b in ((32,) if k else (16,))]


def new_controller(known: Known) -> Controller:
    return Controller(known, (4, 8, 16))
