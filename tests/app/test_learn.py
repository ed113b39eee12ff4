"""The tour: the recorded run that it tells, its live settings, and that every step of every method can be told."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import pytest

from app import presets
from app.learn.tab import lesson_run, tour
from d2sd import METHODS, DecodeConfig
from d2sd.trace.metrics import boundary_hit
from d2sd.trace.run import OUTCOME, RecordedRun
from tests.scripts.node import stops_of
from tools import record


@pytest.fixture(scope="module")
def recorded():
    return lesson_run().trace()


def instructive(trace):
    """The step that is chosen of all steps of a trace."""
    return RecordedRun.of(trace.records()).instructive


def test_tour_starts_at_predicted_and_repaired_boundary(recorded):
    step = recorded.steps[instructive(recorded)]
    assert boundary_hit(step)
    assert {0 in step.nodes[n].candidates for n in step.accepted} == {True, False}
    assert step.committed[-1].node is None


def test_instructive_step_defaults_to_first(recorded):
    assert instructive(replace(recorded, steps=())) == 0
    assert instructive(replace(recorded, steps=recorded.steps[:1])) == 0


def test_spread_prefers_texts_where_settings_matter():
    """A text on which γ alone matters shows nothing when K is changed."""

    def points(by_k, by_gamma):
        settings = [(1, 16), (2, 16), (4, 16), (2, 8), (2, 4)]
        steps = [*by_k, *by_gamma]
        return [record.SettingsPoint(*s, (1,) * n, ()) for s, n in zip(settings, steps, strict=True)]

    assert record.spread(points((30, 26, 24), (29, 36))) == pytest.approx(6 / 30)
    assert record.spread(points((10, 9, 9), (17, 32))) == pytest.approx(1 / 10)
    assert record.spread(points((120, 110, 108), (130, 135))) < record.spread(points((20, 17, 17), (20, 25)))


@pytest.mark.parametrize("method", list(METHODS))
def test_tour_stops_cover_every_step_and_method(engine, method):
    temperature = (list(METHODS).index(method) + (engine.models.target.config.model_type == "llama")) % 2  # each once
    trace = engine.generate("the cat sat", DecodeConfig(method, 16, temperature=temperature))
    for told, step in zip(stops_of(RecordedRun.of(trace.records()).lines(outcomes=True)), trace.steps, strict=True):
        assert len(told["stops"]) == 9
        assert all(stop["title"] and stop["say"] and all(stop["say"]) for stop in told["stops"])
        assert "null" not in json.dumps([[stop["say"], stop["numbers"]] for stop in told["stops"]])
        assert told["tokens"] == sorted(told["tokens"])
        assert told["tokens"][-1] == len(step.committed)
        assert len(told["tokens"]) == len(step.branches) + 1


def test_packed_tour_is_recorded_run_with_outcomes(recorded):
    data = json.loads(zlib.decompress(base64.b64decode(tour(None)), -zlib.MAX_WBITS))
    lines = data["lines"].splitlines()
    assert [line for line in lines if not line.startswith(OUTCOME)] == presets.lesson()["lines"]
    assert len(lines) == len(presets.lesson()["lines"]) + len(recorded.steps)
    chat = recorded.header["models"]["preset"] == presets.FIRST
    assert data["about"] == (presets.FIRST_SAID if chat else presets.TINY_SAID)
    assert data["examples"] == (presets.CHAT_EXAMPLES if chat else presets.EXAMPLES)
    assert data["start"] == instructive(recorded)
    assert data["run"] == recorded.header["run"]


def test_lesson_and_opening_share_recording_of_equal_prompt():
    tour, opening = presets.lesson()["lines"], presets.opening().lines()
    one, other = json.loads(tour[0]), json.loads(opening[0])
    assert one["prompt"] != other["prompt"] or tour == opening
