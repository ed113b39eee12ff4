"""Where the nodes of a step stand, for the notebook's figure and the terminal's drawing. (The page lays trees out itself.)"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import count

from d2sd.trace.events import Node, StepDone


def with_bonus(step: StepDone) -> list[Node]:
    """The nodes and, as one more, the target's own token at the end of the accepted path, where there is one."""
    nodes, last = list(step.nodes), step.committed[-1]
    if last.node is None:
        parent = step.nodes[step.accepted[-1] if step.accepted else 0]
        choice = next((c for c in step.choices if c.node == parent.id), None)
        text, probability = (choice.text, choice.probability) if choice else (last.text, None)
        at = (len(nodes), parent.id, parent.depth + 1)
        nodes.append(Node(*at, last.token, text, (), "target", "accepted", None, probability, None))
    return nodes


def children_of(nodes: Sequence[Node]) -> defaultdict[int, list[Node]]:
    """The children of each node by its id. First the one that goes straight on: accepted, or else of the first draft."""
    children: defaultdict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        children[node.parent].append(node)
    for below in children.values():
        below.sort(key=lambda n: (n.state != "accepted", 0 not in n.candidates, n.id))
    return children


def tree_lanes(nodes: Sequence[Node]) -> list[int]:
    """A lane for every node: a first child stands in its parent's, the others branch off below."""
    children = children_of(nodes)
    lanes = [0] * len(nodes)
    taken: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    waiting = [nodes[0]]
    while waiting:
        chain = [waiting.pop()]
        while children[chain[-1].id]:
            chain.append(children[chain[-1].id][0])
        start, end = chain[0].depth - 1, chain[-1].depth
        above = lanes[chain[0].parent] + 1 if chain[0].parent >= 0 else 0
        lane = next(x for x in count(above) if all(end < a or b < start for a, b in taken[x]))
        taken[lane].append((start, end))
        for node in chain:
            lanes[node.id] = lane
        # the deepest fork comes next: what hangs on it stays close
        waiting += [n for parent in chain for n in children[parent.id][1:]]
    return lanes
