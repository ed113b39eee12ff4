"""Trees without a block draft (EAGLE-3): is a node accepted as often as the probability of its path predicts?

Every verified node counts. Nodes that the target did not reach are not accepted, since the target chose another path. Steps
that the token limit cut short are left out, because the end of their walk is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from d2sd.trace.events import StepDone


@dataclass(frozen=True, slots=True)
class Paths:
    """M verified nodes: row of the step in its table, node, depth, the drafter's probability of the path, accepted 0/1.

    They are ordered by step; within a step accepted nodes come first, then the others by descending probability.
    """

    row: np.ndarray
    node: np.ndarray
    depth: np.ndarray
    probability: np.ndarray
    accepted: np.ndarray

    def __len__(self) -> int:
        return len(self.row)


def tabulate_paths(runs: Sequence[Sequence[StepDone]]) -> Paths:
    """Returns the nodes of all steps without a block draft, in the order of ``tabulate``'s rows."""
    found: list[tuple[int, int, int, float, float]] = []
    for row, step in enumerate(s for run in runs for s in run):
        if step.first_draft is not None or len(step.nodes) < 2 or step.committed[-1].node is not None:
            continue
        reach = [1.0]
        for node in step.nodes[1:]:
            reach.append(reach[node.parent] * (node.drafter_probability or 0.0))
        nodes = sorted(step.nodes[1:], key=lambda n: (n.state != "accepted", -reach[n.id], n.id))
        found += [(row, n.id, n.depth, reach[n.id], float(n.state == "accepted")) for n in nodes]
    rows, ids, depths, probabilities, accepted = zip(*found, strict=True) if found else ((),) * 5
    return Paths(
        np.array(rows, int), np.array(ids, int), np.array(depths, int), np.array(probabilities, float), np.array(accepted, float)
    )  # fmt: skip
