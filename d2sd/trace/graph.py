"""Token trees as networkx graphs; networkx is imported on first use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import log
from typing import TYPE_CHECKING, Any

from d2sd.trace.events import StepDone
from d2sd.trace.metrics import verdict

if TYPE_CHECKING:
    import networkx

# Characters that are not allowed in XML, and therefore not in GraphML.
_ILLEGAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def graph(step: StepDone) -> networkx.DiGraph:
    """Returns the token tree of one step as a graph. Its node ids are those of ``step.nodes``, and its edges lead from parent to child.

    step: the step, such as ``trace.steps[0]``.

    Node attributes:

    * token, depth, proposer, state;
    * text, in which characters that GraphML cannot hold are replaced;
    * drafter_probability, target_probability, target_rank, if they are known;
    * score: natural logarithm of the drafters' probability of the path to the node, if it is known;
    * only in trees that grew level by level (EAGLE-3): level, and kept (whether the next pass continued the node).

    Graph attributes: step, counted from 1; anchor_position; prediction, if the ``d2sd.trace.metrics.verdict`` is known.
    """
    import networkx

    outcome = verdict(step)
    of_step = {"step": step.step + 1, "anchor_position": step.anchor_position}
    tree = networkx.DiGraph(**of_step, **({"prediction": outcome} if outcome else {}))
    tree.add_nodes_from(enumerate(_attributes(step)))
    tree.add_edges_from((node.parent, node.id) for node in step.nodes if node.parent >= 0)
    return tree


def forest(steps: Iterable[StepDone]) -> networkx.DiGraph:
    """Returns the trees of all steps as one graph. Node ``"3.12"`` is node 12 of the third step. Nodes have the attributes that
    ``graph`` gives them, and ``step``, counted from 1."""
    import networkx

    trees = networkx.DiGraph()
    for step in steps:
        number = step.step + 1
        trees.add_nodes_from(
            (f"{number}.{node}", {"step": number, **attributes}) for node, attributes in enumerate(_attributes(step))
        )
        trees.add_edges_from((f"{number}.{n.parent}", f"{number}.{n.id}") for n in step.nodes if n.parent >= 0)
    return trees


def _attributes(step: StepDone) -> Iterator[dict[str, Any]]:
    """Yields the attributes of each node, in the order of ``step.nodes``."""
    names = ("token", "depth", "proposer", "state", "drafter_probability", "target_probability", "target_rank")
    kept = {node for level in step.levels for node in level.nodes}
    scores: list[float | None] = []
    for node in step.nodes:
        attributes: dict[str, Any] = {"text": _ILLEGAL.sub(_replacement, node.text)}
        attributes |= {name: value for name in names if (value := getattr(node, name)) is not None}
        if node.parent < 0:
            scores.append(0.0)
        else:
            above, probability = scores[node.parent], node.drafter_probability
            scores.append(None if above is None or not probability else above + log(probability))
            attributes |= {} if scores[-1] is None else {"score": scores[-1]}
            attributes |= {"level": node.depth, "kept": node.id in kept} if step.levels else {}
        yield attributes


def _replacement(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "\ufffd"
