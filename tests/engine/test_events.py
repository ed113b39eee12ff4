"""Step events are consistent with themselves and with the text."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from d2sd import METHODS, DecodeConfig, StepDone
from d2sd.decoding import generation
from d2sd.nets import passes
from d2sd.trace.trace import parse_trace
from d2sd.tree.boundary import boundary_posterior, open_prefixes, select_prefixes
from tests.clocks import Ticking


def test_stage_times_leave_out_inspection(bundled, monkeypatch):
    clock, real = Ticking(1.0), generation.measure

    def slow(*args):
        clock.now += 100 if args[-1] else 0
        return real(*args)

    monkeypatch.setattr(passes, "time", SimpleNamespace(perf_counter=clock))
    monkeypatch.setattr(generation, "measure", slow)
    steps = bundled.generate("Once upon a time, a frog", DecodeConfig("d2sd", 16)).steps
    assert clock.now > 100 * len(steps)
    assert {step.seconds.total for step in steps} == {5.0}


@pytest.mark.parametrize(("settings", "passes"), [({}, 3), ({"block_size": 2, "num_branches": 1}, 2)])
def test_draft_passes_counts_third_level(bundled, settings, passes):
    steps = bundled.generate("Once upon a time, a frog", DecodeConfig("d2sd_three_level", 24, **settings)).steps
    assert max(s.draft_passes for s in steps) == passes
    assert all((s.draft_passes == 3) == any(b.base for b in s.branches) for s in steps)


# Greedy and sampled runs alternate by method; D²SD has both.
RUNS = [("d2sd", 0.0), ("d2sd", 0.9), *((m, 0.9 * (n % 2)) for n, m in enumerate(METHODS) if m != "d2sd")]


@pytest.mark.parametrize(("method", "temperature"), RUNS)
def test_step_events_agree_with_nodes_and_text(bundled, method, temperature):
    trace = bundled.generate("Once upon a time, a frog", DecodeConfig(method, 16, temperature=temperature))
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
            assert step.boundary_posterior == posterior
            assert step.full_acceptance == full
            usable = open_prefixes(step.first_draft.ids, bundled.models.target.end_ids)
            assert step.selected_prefixes == select_prefixes(posterior[:usable], 4)
            for branch, prefix in zip(step.branches, step.selected_prefixes, strict=True):
                assert branch.prefix == prefix
                assert len(branch.ids) == 15 - prefix
        if step.actual_boundary is not None:
            drafted = step.first_draft.ids[: step.actual_boundary]
            assert drafted == tuple(c.token for c in step.committed[: step.actual_boundary])
    text = "".join(c.text for part in (trace.prefill, *trace.steps) for c in part.committed)
    assert text == trace.finished.text


def test_inspect_off_keeps_tokens_and_records_less(bundled):
    seen, blind = (bundled.generate("A boat", DecodeConfig("d2sd", 20, inspect=i)) for i in (True, False))
    assert seen.token_ids == blind.token_ids
    assert parse_trace("".join(blind.lines()).encode()) == blind
    assert seen.steps[0].first_draft.alternatives
    for step in blind.steps:
        assert (step.first_draft.alternatives, step.target_tops, step.tempered) == ((), (), ())
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
