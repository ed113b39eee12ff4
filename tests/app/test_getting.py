"""Getting a target for the page: what is said while it arrives, when it is stopped, and at its end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from app import model_choice as getting
from app.jobs import Job, updates_of
from d2sd import InputError
from d2sd.folders.getting import Stopped
from d2sd.folders.store import MEGABYTE, REMOTE


@pytest.fixture
def asked(monkeypatch):
    """A request for the target, whose source hands out 5 MB and then what ``asked`` is given."""
    monkeypatch.setattr(getting, "SECONDS_BETWEEN_NEWS", 0.02)

    def begin(end):
        def get(_, report, stop):
            time.sleep(0.05)
            report(5 * MEGABYTE, 93 * MEGABYTE)
            return end(stop)

        monkeypatch.setattr(getting, "get_target", get)
        job = Job()
        return job, updates_of(job, getting.run(job, REMOTE["smollm2"]))

    return begin


def until_stopped(stop):
    while not stop():
        time.sleep(0.01)
    raise Stopped


def test_progress_is_told_and_stop_says_what_stays(asked):
    job, updates = asked(until_stopped)
    assert next(updates).news == "Getting SmolLM2-135M-Instruct: connecting …"
    assert any("5 of 93 MB" in update.news for update in updates)
    job.stopped = True
    assert list(updates)[-1].note == "Stopped at 5 of 93 MB; the next download resumes from there."
    assert job.ended


def test_the_end_names_the_model_or_what_went_wrong(asked):
    def fail(_):
        raise InputError("there is no network")

    assert list(asked(lambda _: Path())[1])[-1].value == "smollm2"
    assert list(asked(fail)[1])[-1].problem == "there is no network"
