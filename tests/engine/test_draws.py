"""The recorded draws of the target above temperature 0: noise, and what speculative sampling would replace a rejected token by."""

from __future__ import annotations

import msgspec
import pytest
import torch

from d2sd import DecodeConfig
from d2sd.decoding import generation
from d2sd.decoding.verifier import gumbel_noise
from d2sd.trace.events import to_line

PROMPT = "the cat"


@pytest.fixture(scope="module", params=["d2sd", "ddtree", "d2sd_tree", "dflash_resample"])
def recorded(request, engine):
    """The steps of a sampled run, each with the arguments from which its draws were described."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        describe = generation.describe_draws
        patch.setattr(generation, "describe_draws", lambda *args: seen.append(args) or describe(*args))
        trace = engine.generate(PROMPT, DecodeConfig(request.param, 24, temperature=1.0, seed=3))
    return list(zip(trace.steps, seen, strict=True))


def test_draws_have_the_noise_that_decided(recorded):
    for step, (scores, *_) in recorded:
        assert [d.node for d in step.draws] == [c.node for c in step.choices]
        for draw, choice in zip(step.draws, step.choices, strict=True):
            position = step.anchor_position + step.nodes[draw.node].depth + 1
            noise = gumbel_noise(3, [position], scores.shape[-1], scores.device)[0]
            assert draw.noise == pytest.approx(noise[list(draw.tokens)].tolist(), abs=1e-6)
            sums = scores[draw.node].log_softmax(-1) + noise
            assert draw.tokens[0] == choice.token == int(sums.argmax())
            drafted = {n.token for n in step.nodes if n.parent == draw.node}
            assert drafted | {a.id for t in step.target_tops if t.node == draw.node for a in t.top} <= {*draw.tokens}


def test_residual_and_acceptance_together_give_the_targets_distribution(recorded):
    found = 0
    for step, (scores, _, proposal, *_) in recorded:
        for draw in (d for d in step.draws if d.rejected is not None):
            node = step.nodes[draw.rejected]
            assert (node.parent, node.state) == (draw.node, "rejected")
            block = proposal.blocks[node.candidates[0]]
            p, q = scores[draw.node].softmax(-1), block.whole(node.depth - 1 - block.prefix)
            assert q.sum() == pytest.approx(1, abs=1e-5)
            assert q[node.token] == pytest.approx(block.confidence[node.depth - 1 - block.prefix], abs=1e-5)
            accepted = torch.minimum(p, q)  # q · min(1, p ÷ q)
            residual = torch.zeros_like(p)
            for other in draw.residual:
                residual[other.id] = other.probability
            listed = residual > 0
            whole = accepted + (1 - accepted.sum()) * residual
            assert torch.allclose(whole[listed], p[listed], atol=2e-6)
            assert [a.probability for a in draw.residual] == sorted(
                (a.probability for a in draw.residual), reverse=True
            )
            found += 1
    assert found


def test_seeds_draw_by_the_recorded_probabilities(recorded):
    step, (scores, *_) = recorded[0]
    row, draws, position = scores[0], 4000, step.anchor_position + 1
    counts = torch.zeros_like(row)
    for seed in range(draws):
        counts[(row + gumbel_noise(seed, [position], len(row), row.device)[0]).argmax()] += 1
    expected = draws * row.softmax(-1)
    often = expected > 20
    chi = ((counts - expected) ** 2 / expected)[often].sum()
    assert chi < often.sum() + 5 * (2 * often.sum()) ** 0.5


def test_draws_lengthen_a_trace_by_at_most_a_tenth(recorded):
    lines, without = (
        sum(len(to_line(msgspec.structs.replace(step, **change))) for step, _ in recorded)
        for change in ({}, {"draws": ()})
    )
    assert without < lines < 1.1 * without


@pytest.mark.parametrize("change", [{"temperature": 0.0}, {"inspect": False}])
def test_greedy_and_unwatched_runs_record_no_draws(engine, change):
    steps = engine.generate(PROMPT, DecodeConfig("d2sd", 12, **{"temperature": 1.0, **change})).steps
    assert not any(step.draws for step in steps)
