"""The lines that the viewer reads: those of the trace, and before each step its verdict."""

from __future__ import annotations

import json

import pytest

from d2sd import DecodeConfig
from d2sd.trace.metrics import closed_from, instructiveness, tokens_gained, verdict
from d2sd.trace.viewer_lines import VERDICT, Judge, pack_line, unpack_line


@pytest.fixture(scope="module", params=["d2sd", "random_prefix", "dflash"])
def trace(engine, request):
    return engine.generate("the cat sat", DecodeConfig(request.param, 32))


def test_before_each_step_stands_what_the_metrics_say_of_it(trace):
    judge = Judge()
    lines = list(judge.lines(trace.lines()))
    told = [json.loads(line) for line in lines if line.startswith(VERDICT)]
    method = trace.header["method"]
    assert [(t["verdict"], t["gained"], t["closed"]) for t in told] == [
        (verdict(s), tokens_gained(s), closed_from(s, method)) for s in trace.steps
    ]
    steps = [n for n, line in enumerate(lines) if line.startswith('{"event":"StepDone"')]
    assert all(lines[n - 1].startswith(VERDICT) for n in steps)
    assert [line for line in lines if not line.startswith(VERDICT)] == list(trace.lines())


def test_the_instructive_step_is_known_at_every_time(trace):
    judge, best = Judge(), 0
    for number, (step, line) in enumerate(zip(trace.steps, list(trace.lines())[2:], strict=False)):
        list(judge.lines([line]))
        best = number if instructiveness(step) > instructiveness(trace.steps[best]) else best
        assert judge.instructive == best


@pytest.mark.parametrize(
    "lines", [["another trace"], ['{"event":"StepDone","nodes":3}'], ["[]", "{", '{"event":"Header"}']]
)
def test_what_cannot_be_judged_goes_by_as_it_is(lines):
    assert list(Judge().lines(lines)) == lines


def test_a_packed_line_is_the_line():
    assert unpack_line(pack_line("a\nb")) == "a\nb"
    assert unpack_line("{}") == "{}"
