"""What the target would go on with behind the nodes of a tree: recorded where it is inspected, and consistent with the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from d2sd import DecodeConfig, InputError
from d2sd.decoding.inspection import TOP_ALTERNATIVES
from d2sd.trace.consistency import check_step


@pytest.fixture(scope="module")
def steps(engine):
    return engine.generate("the cat", DecodeConfig("d2sd", 16)).steps


def test_every_node_with_others_below_it_has_the_targets_choices(steps):
    for step in steps:
        recorded = {t.node for t in step.target_tops}
        assert recorded >= {n.parent for n in step.nodes if n.parent >= 0} | {c.node for c in step.choices}


def test_they_agree_with_the_ranks_and_probabilities_of_the_nodes(steps):
    seen = 0
    for step in steps:
        tops = {t.node: t.top for t in step.target_tops}
        for node in step.nodes[1:]:
            top = tops[node.parent]
            assert [a.probability for a in top] == sorted((a.probability for a in top), reverse=True)
            if node.target_rank < TOP_ALTERNATIVES:
                seen += 1
                assert top[node.target_rank].id == node.token
                assert top[node.target_rank].probability == pytest.approx(node.target_probability, abs=1e-6)
        for choice in step.choices:
            assert tops[choice.node][0].id == choice.token
    assert seen


def test_without_inspection_there_are_none(engine):
    steps = engine.generate("the cat", DecodeConfig("d2sd", 8, inspect=False)).steps
    assert all(step.target_tops == () for step in steps)


def test_a_place_that_is_not_in_the_tree_is_refused(steps):
    step = steps[0]
    wrong = replace(step.target_tops[0], node=len(step.nodes))
    with pytest.raises(InputError, match=r"target_tops\[0\]\.node"):
        check_step(replace(step, target_tops=(wrong,)))
