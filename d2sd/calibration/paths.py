"""Trees without a block draft (EAGLE-3): is a node accepted as often as the probability of its whole path says?

Every verified node counts, also those that the target never reached: their path was not the target's, so they were not
accepted. Steps that the limit on tokens cut short are left out, because there the walk's end is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from d2sd.trace.events import StepDone


@dataclass(frozen=True, slots=True)
class Paths:
    """M verified nodes: row of the step in its table, node, depth, probability that the drafter gave the path, accepted 0/1.

    Step by step; in a step the accepted nodes come first, then the others, the surest first.
    """

    row: np.ndarray
    node: np.ndarray
    depth: np.ndarray
    probability: np.ndarray
    accepted: np.ndarray

    def __len__(self) -> int:
        return len(self.row)


def tabulate_paths(runs: Sequence[Sequence[StepDone]]) -> Paths:
    """The nodes of all steps whose tree is no block draft, in the order of ``tabulate``'s rows."""
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
