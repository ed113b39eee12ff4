"""What a verified node costs on this machine, and how many nodes are worth it.

Speculation is worth its time as in D²SD, arXiv 2606.04446, equations 1–2: speedup = α · T_target / (T_draft +
T_verify). Here T_verify is fitted as a line over the number of tree nodes, from measured passes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from d2sd.decoding.verifier import Verifier
from d2sd.models.target import Target
from d2sd.passes.passes import Passes
from d2sd.tree.tree import TokenTree

SIZES = (2, 8, 16, 32, 48, 64)
REPEATS = 7
CONTEXT = 192
MEASURED_SLOTS = CONTEXT + max(SIZES)


@dataclass(frozen=True, slots=True)
class VerifyCost:
    """Seconds of a target pass over n nodes, anchor included: ``fixed`` + ``per_node`` · n."""

    fixed: float
    per_node: float

    def seconds(self, nodes: int) -> float:
        """Estimated time of one pass."""
        return self.fixed + self.per_node * nodes


@torch.inference_mode()
def measure_verify_cost(target: Target, passes: Passes) -> VerifyCost:
    """Fit a line through the median times of passes over trees of several sizes after a context of 192 tokens.

    passes: how they are run, with ``MEASURED_SLOTS`` slots.
    """
    verifier = Verifier(target, passes)
    verifier.cache.length = CONTEXT
    trees = {n: path_tree(n) for n in SIZES}
    times: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(REPEATS + 1):  # the first round warms up
        for size in SIZES:
            began = time.perf_counter()
            verifier.logits(trees[size]).argmax(-1).tolist()
            times[size].append(time.perf_counter() - began)
    per_node, fixed = np.polyfit(SIZES, [median(times[size][1:]) for size in SIZES], 1)
    return VerifyCost(max(0.0, float(fixed)), max(1e-9, float(per_node)))


def path_tree(count: int) -> TokenTree:
    """So many nodes in a row: what they are and where they come from does not matter for their time."""
    parents, depths = tuple(range(-1, count - 1)), tuple(range(count))
    return TokenTree((0,) * count, parents, depths, (0,) * count, (1.0,) * count, ((),) * count)


def affordable(reach: Sequence[float], cost: VerifyCost, spent: float) -> int:
    """How many nodes below the anchor make expected tokens per second largest.

    reach: estimated probabilities of acceptance of the nodes, in descending order; spent: seconds of this step that
    do not depend on the choice (drafting). With the first n nodes 1 + Σ reach tokens are expected; a further node is
    worth verifying while its gain per second exceeds the rate reached so far.
    """
    tokens, seconds = 1.0, spent + cost.seconds(1)
    for count, gain in enumerate(reach):
        if gain * seconds < tokens * cost.per_node:
            return count
        tokens += gain
        seconds += cost.per_node
    return len(reach)
