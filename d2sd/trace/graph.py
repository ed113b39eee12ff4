"""Token trees as networkx graphs. networkx is imported when a graph is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from d2sd.trace.events import Node, StepDone
from d2sd.trace.metrics import prediction

if TYPE_CHECKING:
    import networkx

# What XML, and so GraphML, cannot hold.
_ILLEGAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def step_graph(step: StepDone) -> networkx.DiGraph:
    """The tree of one step: node ids as in ``step.nodes``, edges from parent to child.

    Node attributes: token, text, depth, proposer, state, and, where they are known, drafter_probability,
    target_probability and target_rank; of the graph: step, counted from 1 as on the page, prediction (what came of the
    selected prefixes, where that is known; see ``d2sd.trace.metrics``) and anchor_position. Characters that a GraphML file cannot hold are shown by a stand-in in ``text``.
    """
    import networkx

    outcome = prediction(step)
    of_step = {"step": step.step + 1, "anchor_position": step.anchor_position}
    graph = networkx.DiGraph(**of_step, **({"prediction": outcome} if outcome else {}))
    graph.add_nodes_from((node.id, _attributes(node)) for node in step.nodes)
    graph.add_edges_from((node.parent, node.id) for node in step.nodes if node.parent >= 0)
    return graph


def forest(steps: Iterable[StepDone]) -> networkx.DiGraph:
    """The trees of all steps side by side: node ``"3.12"`` is node 12 of step 3, counted from 1; ``step`` is one more attribute."""
    import networkx

    graph = networkx.DiGraph()
    for step in steps:
        number = step.step + 1
        graph.add_nodes_from((f"{number}.{n.id}", {"step": number, **_attributes(n)}) for n in step.nodes)
        graph.add_edges_from((f"{number}.{n.parent}", f"{number}.{n.id}") for n in step.nodes if n.parent >= 0)
    return graph


def _attributes(node: Node) -> dict[str, Any]:
    names = ("token", "depth", "proposer", "state", "drafter_probability", "target_probability", "target_rank")
    known = {name: value for name in names if (value := getattr(node, name)) is not None}
    return {"text": _ILLEGAL.sub(_stand_in, node.text), **known}


def _stand_in(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "\ufffd"
