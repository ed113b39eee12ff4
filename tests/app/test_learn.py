"""The tour of Learn: the recorded run that it explains, and chapters for every step of every method."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import pytest

from app import presets
from app.learn.tab import tour
from d2sd import METHODS, DecodeConfig
from d2sd.trace.metrics import boundary_hit
from d2sd.trace.run import OUTCOME, RecordedRun
from tests.scripts.node import chapters_of


@pytest.fixture(scope="module")
def recorded():
    return presets.opening().trace()


def instructive(trace):
    """Returns the number of the step that the tour of this trace starts with."""
    return RecordedRun.of(trace.records()).instructive


def test_tour_starts_at_predicted_and_repaired_boundary(recorded):
    step = recorded.steps[instructive(recorded)]
    assert boundary_hit(step)
    assert {0 in step.nodes[n].candidates for n in step.accepted} == {True, False}
    assert step.committed[-1].node is None


def test_instructive_step_defaults_to_first(recorded):
    assert instructive(replace(recorded, steps=())) == 0
    assert instructive(replace(recorded, steps=recorded.steps[:1])) == 0


@pytest.mark.parametrize("method", list(METHODS))
def test_chapters_tell_every_step_of_every_method(engine, method):
    # 0 for one engine, 1 for the other
    temperature = (list(METHODS).index(method) + (engine.models.target.config.model_type == "llama")) % 2
    trace = engine.generate("the cat sat", DecodeConfig(method, 16, temperature=temperature))
    for told, step in zip(chapters_of(RecordedRun.of(trace.records()).lines(outcomes=True)), trace.steps, strict=True):
        names = [chapter["name"] for chapter in told["chapters"]]
        assert names[0] == "One by one"
        assert names[-2:] == ["One pass", "What it buys"]
        assert ("Prepare" in names) == ("Merge" in names) == bool(step.branches)
        assert all(chapter["title"] and chapter["say"] and all(chapter["say"]) for chapter in told["chapters"])
        assert not any(word in json.dumps(told["chapters"]) for word in ("null", "NaN", "undefined"))
        assert told["tokens"] == sorted(told["tokens"])
        assert told["tokens"][-1] == len(step.committed)
        assert len(told["tokens"]) == len(step.branches) + 1


def test_packed_tour_is_recorded_run_with_outcomes(recorded):
    data = json.loads(zlib.decompress(base64.b64decode(tour(None)), -zlib.MAX_WBITS))
    lines = data["lines"].splitlines()
    assert [line for line in lines if not line.startswith(OUTCOME)] == presets.opening().lines()
    assert len(lines) == len(presets.opening().lines()) + len(recorded.steps)
    chat = recorded.header["models"]["preset"] == presets.FIRST
    assert data["about"] == (presets.FIRST_SAID if chat else presets.TINY_SAID)
    assert data["start"] == instructive(recorded)
    assert data["run"] == recorded.header["run"]
