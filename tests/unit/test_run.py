"""A recorded run as it is sent to the viewer: the lines of its trace, with an outcome before each step."""

from __future__ import annotations

import json

import pytest

from d2sd import DecodeConfig
from d2sd.trace.events import Baseline, to_line
from d2sd.trace.metrics import StepOutcome, instructiveness
from d2sd.trace.run import OUTCOME, RecordedRun, pack_line, unpack_line


@pytest.fixture(scope="module", params=["d2sd", "random_prefix", "dflash"])
def trace(engines, request):
    return engines("llama").generate("the cat sat", DecodeConfig(request.param, 32))


def opened(run):
    """The lines of a segment after its head, as the viewer reads them."""
    return [line for entry in run.segment().splitlines()[1:] for line in unpack_line(entry).split("\n")]


def test_recorded_run_puts_outcome_before_each_step(trace):
    lines = RecordedRun.of(trace.records()).lines(outcomes=True)
    outcomes = [line for line in lines if line.startswith(OUTCOME)]
    assert outcomes == [to_line(StepOutcome.of(step, trace.header)).rstrip() for step in trace.steps]
    steps = [n for n, line in enumerate(lines) if line.startswith('{"event":"StepDone"')]
    assert all(lines[n - 1].startswith(OUTCOME) for n in steps)


def test_recorded_run_live_and_whole_match_trace(trace):
    live, best = RecordedRun(live=True), 0
    for number, record in enumerate(trace.records(), -2):
        live.append([record])
        if number > 0 and record is not trace.finished:
            best = number if instructiveness(record) > instructiveness(trace.steps[best]) else best
        assert live.instructive == best
        assert live.ended == (record is trace.finished)
    kept = RecordedRun.of(trace.records())
    assert opened(live) == opened(kept)
    assert live.lines() == kept.lines() == [line.rstrip("\n") for line in trace.lines()]
    assert live.trace() == kept.trace() == RecordedRun.read("".join(trace.lines()).encode()).trace() == trace
    assert live.holds(kept)
    heads = [json.loads(run.segment(key="k").partition("\n")[0]) for run in (live, kept)]
    assert heads[0] == heads[1] == {"event": "Segment", "key": "k", "from": 0, "steps": len(trace.steps), "instructive": best}  # fmt: skip


def test_recorded_run_keeps_baseline_speed(trace):
    run = RecordedRun.of([*trace.records(), Baseline(50.0)])
    assert run.lines()[-1] == '{"event":"Baseline","tokens_per_second":50.0}'
    assert RecordedRun.read("\n".join(run.lines()).encode()).baseline == Baseline(50.0)
    assert run.ended
    assert run.trace() == trace


def test_recorded_run_segment_separates_header_and_packs_lines(trace):
    run = RecordedRun.of(trace.records())
    assert run.segment(1).count("\n") == len(run) < len(run.lines())
    assert json.loads(unpack_line(run.segment().split("\n")[1])) == run.header
    assert run.note(file="f").count("\n") == 1
    assert RecordedRun.of([]).lines() == []


def test_packed_line_round_trips():
    assert unpack_line(pack_line("a\nb")) == "a\nb"
    assert unpack_line("{}") == "{}"
