"""The target's most probable tokens after tree nodes, as inspected runs record them, agree with the other records."""

from __future__ import annotations

from math import nan
from types import SimpleNamespace

import pytest
import torch

from d2sd import DecodeConfig
from d2sd.decoding.inspection import Inspection, describe_tops, measure, measured_rows


@pytest.fixture(scope="module")
def steps(engine):
    return engine.generate("the cat", DecodeConfig("d2sd", 16)).steps


def test_target_tops_cover_inner_and_visited_nodes(steps):
    for step in steps:
        recorded = {t.node for t in step.target_tops}
        assert recorded >= {n.parent for n in step.nodes if n.parent >= 0} | {c.node for c in step.choices}


def test_target_tops_agree_with_choices(steps):
    for step in steps:
        tops = {t.node: t.top for t in step.target_tops}
        for top in tops.values():
            assert [a.probability for a in top] == sorted((a.probability for a in top), reverse=True)
        for choice in step.choices:
            assert (tops[choice.node][0].id, tops[choice.node][0].probability) == (choice.token, choice.probability)


def test_measured_tops_agree_with_ranks_and_probabilities():
    scores = torch.randn(20, 30, generator=torch.Generator().manual_seed(0))
    parents = torch.arange(-1, 19).clamp(min=0)
    tokens = scores[parents].topk(7).indices[:, 3]
    measured = measure(scores, scores.argmax(-1), tokens, parents, inspect=True)
    assert len(measured) == measured_rows(True, 30)
    seen = Inspection.read(measured.tolist())
    assert set(seen.rank) == {3}
    for node, parent in enumerate(parents.tolist()):
        ids, shown = seen.top[parent]
        assert (ids[3], shown[3]) == (tokens[node], seen.probability[node])
        assert (ids[0], shown[0]) == (seen.chosen[parent], seen.choice_probability[parent])


def test_describe_tops_drops_zero_and_nan_probabilities(engine):
    """Numerical failures of a network off the accepted path give NaN."""
    top = [((7, 8, 9), (0.75, 0.25, 0.0)), ((7, 8, 9), (nan, nan, nan))]
    proposal, walked = SimpleNamespace(tree=SimpleNamespace(parents=(-1, 0, 1))), SimpleNamespace(visited=(0,))
    first, second = describe_tops(proposal, Inspection([1, 1], top=top), walked, engine.texts)
    assert [(a.id, a.probability) for a in first.top] == [(7, 0.75), (8, 0.25)]
    assert second.top == ()
