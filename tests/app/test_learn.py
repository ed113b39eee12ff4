"""The tour of Learn: the recorded run that it explains, and chapters for every step of every method."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import pytest

from app import models, presets
from app.learn.tab import tour
from d2sd import METHODS, DecodeConfig, StepDone
from d2sd.replay.outcomes import recorded_config
from d2sd.trace.metrics import boundary_hit
from d2sd.trace.run import OF_PAGE, RecordedRun, unpack_line
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
        assert names[-3:] == ["One pass", "What it buys", "When it pays"]
        assert ("Prepare" in names) == ("Merge" in names) == bool(step.branches)
        assert all(chapter["title"] and chapter["say"] and all(chapter["say"]) for chapter in told["chapters"])
        assert not any(word in json.dumps(told["chapters"]) for word in ("null", "NaN", "undefined"))
        assert told["tokens"] == sorted(told["tokens"])
        assert told["tokens"][-1] == len(step.committed)
        assert len(told["tokens"]) == len(step.branches) + 1


def test_tokens_with_fewer_redrafts_equal_those_of_the_engine():
    run = presets.opening()
    trace = run.trace()
    config = recorded_config(trace)
    engine = models.engine(models.model_set(str(trace.header["models"]["preset"])))
    ids = [*trace.prefill.prompt_token_ids, *trace.token_ids]
    told = chapters_of(run.lines(outcomes=True))
    assert any(len(step.nodes) == 1 + (config.node_budget or 0) for step in trace.steps)  # cut by the node budget
    for step, counts in zip(trace.steps[:-1], (one["tokens"] for one in told), strict=False):
        for branches, count in enumerate(counts):
            fewer = {"method": "d2sd", "num_branches": branches} if branches else {"method": "dflash"}
            events = engine.stream(ids[: step.anchor_position], replace(config, **fewer))
            assert len(next(e for e in events if isinstance(e, StepDone)).committed) == count


def test_packed_tour_is_recorded_run_with_outcomes(recorded):
    data = json.loads(zlib.decompress(base64.b64decode(tour(None)), -zlib.MAX_WBITS))
    head, *entries = data["lines"].splitlines()
    assert json.loads(head)["recorded"] is True
    lines = [line for entry in entries for line in unpack_line(entry).split("\n")]
    assert [line for line in lines if not line.startswith(OF_PAGE)] == presets.opening().lines()
    assert len(lines) == len(presets.opening().lines()) + len(recorded.steps) + 1  # the replays
    chat = recorded.header["models"]["preset"] == presets.FIRST
    assert data["about"] == (presets.FIRST_SAID if chat else presets.TINY_SAID)
    assert data["start"] == instructive(recorded)
    assert data["run"] == recorded.header["run"]
