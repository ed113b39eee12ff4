"""Token trees as networkx graphs."""

from __future__ import annotations

from math import log
from pathlib import Path

import networkx
import pytest
from msgspec.structs import replace

import d2sd
from d2sd import DecodeConfig

RECORDED = Path(__file__).parent.parent / "data" / "schema-1.jsonl.gz"


@pytest.fixture(scope="module")
def steps():
    return d2sd.load_trace(RECORDED).steps


def path_score(step, node):
    """Sum of the logarithms of drafter probabilities from the anchor to a node."""
    return log(node.drafter_probability) + path_score(step, step.nodes[node.parent]) if node.parent >= 0 else 0.0


def test_graph_of_step_matches_tree(steps):
    step = steps[3]
    graph = d2sd.graph(step)
    assert networkx.is_arborescence(graph)
    assert set(graph.edges) == {(n.parent, n.id) for n in step.nodes if n.id}
    assert networkx.shortest_path_length(graph, 0) == {n.id: n.depth for n in step.nodes}
    node = step.nodes[5]
    assert graph.nodes[5] == {
        "token": node.token, "text": node.text, "depth": node.depth, "proposer": node.proposer, "state": node.state,
        "drafter_probability": node.drafter_probability, "target_probability": node.target_probability,
        "target_rank": node.target_rank, "score": pytest.approx(path_score(step, node)),
    }  # fmt: skip
    assert set(graph.nodes[0]) == {"token", "text", "depth", "proposer", "state"}


@pytest.mark.parametrize(
    "text", ["\x00", "\x1b[2J", "\x7f", "\ufffe", "\ud800", "]]>", "<&\"'", "\u2028", "\x85", "\n", ""]
)
def test_graphml_preserves_any_text(steps, text, tmp_path):
    step = replace(steps[0], nodes=tuple(replace(n, text=text) for n in steps[0].nodes))
    networkx.write_graphml(d2sd.graph(step), tmp_path / "o.graphml")
    read = networkx.read_graphml(tmp_path / "o.graphml").nodes["1"]["text"]
    assert len(read) == len(text)
    assert read.strip("\n") == text.strip("\n") or not text.isprintable()


def test_graph_of_tree_built_by_levels_has_levels(engines):
    config = DecodeConfig("eagle3", 3, draft_depth=2, draft_top_k=4, node_budget=9)
    step = engines("llama").generate("the cat", config).steps[0]
    kept = {node for level in step.levels for node in level.nodes}
    found = {node: (known["level"], known["kept"]) for node, known in d2sd.graph(step).nodes(data=True) if node}
    assert found == {node.id: (node.depth, node.id in kept) for node in step.nodes[1:]}
    assert set(found.values()) >= {(1, True), (2, True)}
