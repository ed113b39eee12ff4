"""A's texts with another drafter, in Compare."""

from __future__ import annotations

import pytest

from app import models, presets
from app.compare import compare
from app.jobs import Job, updates_of
from app.models import Chosen
from app.runs.recordings import RunSet
from d2sd import DecodeConfig


def recorded(method="dflash", model="tiny", **settings):
    engine = models.engine(Chosen(model))
    config = DecodeConfig(method, max_new_tokens=24, **settings)
    return RunSet.of("mine", (engine.generate(p, config) for p in ("One day, a cat", "Why is the sky blue?")))


@pytest.fixture(scope="module")
def texts():
    return recorded()


def ask(texts, model="tiny"):
    job = Job()
    return list(updates_of(job, compare.replay(job, texts, Chosen(model))))


def test_replay_with_same_drafter_is_equal(texts):
    *_, last = ask(texts)
    as_recorded, again = (line for line in last.value.split("\n") if "α" in line)
    assert as_recorded.removeprefix("As recorded, mine: ") in again
    assert "+0.00 against the first" in again


def test_replay_with_another_drafter_reports_its_steps(texts):
    updates = ask(texts, presets.DSPARK)
    assert updates[-2].news == "2 of 2 texts …"
    real = [trace.steps for trace in recorded(model=presets.DSPARK).traces]
    steps, tokens = sum(map(len, real)), sum(len(step.committed) for run in real for step in run)
    found = f"With the drafters of {presets.DSPARK}: α {tokens / steps:.2f}, {steps} steps"
    assert found in updates[-1].value
    assert found.split(": ")[1] not in ask(texts)[-1].value  # the other one takes other steps


def test_replay_refuses_sampled_or_empty_texts(texts):
    assert "temperature 0" in ask(recorded(temperature=1.0))[-1].problem
    assert "no text with a step" in ask(RunSet("none", ()))[-1].problem
