"""Step events agree with themselves and with the text; what inspected runs record about drafts, targets and draws."""

from __future__ import annotations

from math import nan
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from d2sd import METHODS, DecodeConfig, Engine, StepDone
from d2sd.decoding import generation
from d2sd.decoding.inspection import Inspection, describe_tops, measure, measured_rows, tempered
from d2sd.decoding.verifier import gumbel_noise
from d2sd.folders.loading import load_drafter
from d2sd.folders.model_sets import BUNDLED
from d2sd.nets import passes
from d2sd.nets.models import Models
from d2sd.trace.events import TEMPERATURES
from d2sd.trace.trace import parse_trace
from d2sd.tree.boundary import boundary_posterior, open_prefixes, select_prefixes
from tests.clocks import Ticking

PROMPT = "Once upon a time, a frog"


def test_stage_times_leave_out_inspection(bundled, monkeypatch):
    clock, real = Ticking(1.0), generation.measure

    def slow(*args):
        clock.now += 100 if args[-1] else 0
        return real(*args)

    monkeypatch.setattr(passes, "time", SimpleNamespace(perf_counter=clock))
    monkeypatch.setattr(generation, "measure", slow)
    steps = bundled.generate(PROMPT, DecodeConfig("d2sd", 16)).steps
    assert clock.now > 100 * len(steps)
    assert {step.seconds.total for step in steps} == {5.0}


# Greedy and sampled runs alternate by method; D²SD has both.
RUNS = [("d2sd", 0.0), ("d2sd", 0.9), *((m, 0.9 * (n % 2)) for n, m in enumerate(METHODS) if m != "d2sd")]


@pytest.mark.parametrize(("method", "temperature"), RUNS)
def test_step_events_agree_with_nodes_and_text(bundled, method, temperature):
    trace = bundled.generate(PROMPT, DecodeConfig(method, 16, temperature=temperature))
    assert parse_trace("".join(trace.lines()).encode()) == trace  # parsing also checks that the fields agree
    for step in trace.steps:
        reached = {c.node for c in step.choices}
        for node in step.nodes[1:]:
            assert (node.state != "unreached") == (node.parent in reached)
            if temperature == 0 and node.parent in reached:
                assert (node.state == "accepted") == (node.target_rank == 0)
        assert all(c.proposer == "target" for c in step.committed if c.node is None)
        if method == "d2sd":
            posterior, full = boundary_posterior(step.first_draft.confidence)
            assert (step.boundary_posterior, step.full_acceptance) == (posterior, full)
            usable = open_prefixes(step.first_draft.ids, bundled.models.target.end_ids)
            assert step.selected_prefixes == select_prefixes(posterior[:usable], 4)
            for branch, prefix in zip(step.branches, step.selected_prefixes, strict=True):
                assert branch.prefix == prefix
                assert len(branch.ids) == 15 - prefix
        if step.actual_boundary is not None:
            drafted = step.first_draft.ids[: step.actual_boundary]
            assert drafted == tuple(c.token for c in step.committed[: step.actual_boundary])
        tops = {t.node: t.top for t in step.target_tops}
        assert tops.keys() >= {n.parent for n in step.nodes if n.parent >= 0} | reached
        for top in tops.values():
            assert [a.probability for a in top] == sorted((a.probability for a in top), reverse=True)
        for choice in step.choices if temperature == 0 else ():
            assert (tops[choice.node][0].id, tops[choice.node][0].probability) == (choice.token, choice.probability)
        assert bool(step.draws) == (temperature > 0)
        assert method != "d2sd_three_level" or (step.draft_passes == 3) == any(b.base for b in step.branches)
        if step.first_draft and step.tempered:
            rows = np.insert(np.array(step.tempered), 2, step.first_draft.confidence, axis=1)
            # confidence falls with the temperature, since greedily drafted tokens are the most probable ones
            assert temperature > 0 or (np.diff(rows, axis=1) <= 2e-6).all()
    text = "".join(c.text for part in (trace.prefill, *trace.steps) for c in part.committed)
    assert text == trace.finished.text


def test_inspect_off_keeps_tokens_and_records_less(bundled):
    seen, blind = (
        bundled.generate("A boat", DecodeConfig("d2sd", 20, temperature=0.9, inspect=i)) for i in (True, False)
    )
    assert seen.token_ids == blind.token_ids
    assert parse_trace("".join(blind.lines()).encode()) == blind
    assert seen.steps[0].first_draft.alternatives
    for step in blind.steps:
        assert (step.first_draft.alternatives, step.target_tops, step.tempered, step.draws) == ((), (), (), ())
        assert all(node.target_probability is None for node in step.nodes)


def test_stop_callback_ends_stream_before_next_step(bundled):
    steps = []
    stream = bundled.stream("A boat", DecodeConfig("d2sd", 100), stop=lambda: len(steps) == 2)
    for event in stream:
        if isinstance(event, StepDone):
            steps.append(event)
        last = event
    assert len(steps) == 2
    assert last.stop_reason == "stopped"


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


def test_describe_tops_drops_zero_and_nan_probabilities(engines):
    """Numerical failures of a network off the accepted path give NaN."""
    top = [((7, 8, 9), (0.75, 0.25, 0.0)), ((7, 8, 9), (nan, nan, nan))]
    proposal, walked = SimpleNamespace(tree=SimpleNamespace(parents=(-1, 0, 1))), SimpleNamespace(visited=(0,))
    first, second = describe_tops(proposal, Inspection([1, 1], top=top), walked, engines("qwen3").texts)
    assert [(a.id, a.probability) for a in first.top] == [(7, 0.75), (8, 0.25)]
    assert second.top == ()


def test_tempered_equals_softmax_at_each_temperature():
    scores = torch.randn(5, 200, generator=torch.Generator().manual_seed(0)) * 4
    places = torch.tensor([3, 5, 7, 9, 11])
    confidence = tempered(scores, places)
    assert torch.equal(tempered(scores.double(), places), confidence)  # computed in float32
    for row, temperature in zip(confidence.T, TEMPERATURES, strict=True):
        exact = (scores / temperature).softmax(-1).gather(1, places[:, None])[:, 0]
        assert row.numpy() == pytest.approx(exact.numpy(), abs=2e-3)  # 0.707 approximates √½


def test_tempered_is_recorded_by_every_kind_of_drafter(bundled):
    dspark = load_drafter(str(BUNDLED / "tiny" / "dspark"), torch.float32, "cpu", bundled.models.target)
    walked = Engine(Models(bundled.models.target, dspark))
    for engine, method in ((walked, "dflash"), (bundled, "ddtree"), (bundled, "draft_model")):
        step = engine.generate("One day, a dog", DecodeConfig(method, 8)).steps[0]
        assert len(step.tempered) == len(step.first_draft.ids) > 0


@pytest.mark.parametrize("method", ["d2sd", "ddtree", "d2sd_tree", "dflash_resample"])
def test_draws_have_the_deciding_noise_and_the_residual_distribution(engines, method, monkeypatch):
    """Acceptance with probability min(1, p ÷ q) and the recorded residual give the target's distribution p."""
    described, describe = [], generation.describe_draws
    monkeypatch.setattr(generation, "describe_draws", lambda *args: described.append(args) or describe(*args))
    trace, rejected = engines("qwen3").generate("the cat", DecodeConfig(method, 24, temperature=1.0, seed=3)), 0
    for step, (scores, _, proposal, *_) in zip(trace.steps, described, strict=True):
        assert [d.node for d in step.draws] == [c.node for c in step.choices]
        for draw, choice in zip(step.draws, step.choices, strict=True):
            position = step.anchor_position + step.nodes[draw.node].depth + 1
            noise = gumbel_noise(3, [position], scores.shape[-1], scores.device)[0]
            assert draw.noise == pytest.approx(noise[list(draw.tokens)].tolist(), abs=1e-6)
            assert draw.tokens[0] == choice.token == int((scores[draw.node].log_softmax(-1) + noise).argmax())
            drafted = {n.token for n in step.nodes if n.parent == draw.node}
            assert drafted | {a.id for t in step.target_tops if t.node == draw.node for a in t.top} <= {*draw.tokens}
        for draw in (d for d in step.draws if d.rejected is not None):
            node = step.nodes[draw.rejected]
            assert (node.parent, node.state) == (draw.node, "rejected")
            block = proposal.blocks[node.candidates[0]]
            p, q = scores[draw.node].softmax(-1), block.whole(node.depth - 1 - block.prefix)
            assert q.sum() == pytest.approx(1, abs=1e-5)
            assert q[node.token] == pytest.approx(block.confidence[node.depth - 1 - block.prefix], abs=1e-5)
            accepted, residual = torch.minimum(p, q), torch.zeros_like(p)
            for other in draw.residual:
                residual[other.id] = other.probability
            listed = residual > 0
            whole = accepted + (1 - accepted.sum()) * residual
            assert torch.allclose(whole[listed], p[listed], atol=2e-6)
            chances = [other.probability for other in draw.residual]
            assert chances == sorted(chances, reverse=True)
            rejected += 1
    assert rejected
