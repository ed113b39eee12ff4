"""Work of every tab: bad input gives a one-sentence error and changes nothing; stopped work shows its partial result."""

from __future__ import annotations

from functools import partial

import pytest

from app import models
from app.calibrate import measure
from app.explore import run as explore
from app.jobs import Job
from app.models import model_set
from app.race import run as race
from app.runs.recordings import Recording, Recordings
from app.session import Session
from app.streaming import RunRequest
from d2sd.doctor import examination
from d2sd.trace.run import RecordedRun
from tests.app import test_calibrate, test_explore, test_race
from tests.app.event import updates_of


def examined(job, limit=1, model="tiny"):
    source, request = measure.PromptSource("heldout"), RunRequest("", model_set(model), "", {"chat": False})
    return updates_of(job, measure.examine_drafter(job, source, limit, request))


@pytest.mark.parametrize(
    ("work", "changes", "sentence"),
    [
        *((work, {"model": "magic"}, "unknown model") for work in ("explore", "race", "measure", "examine")),
        *((work, {"temperature": None}, "temperature must be") for work in ("explore", "race", "measure")),
        *((work, {"num_branches": 16}, "more than the 15 prefixes") for work in ("explore", "race", "measure")),
        *((work, {"prompt": "  "}, "the prompt is empty") for work in ("explore", "race")),
        *((work, {"prompt": "a" * 30_000}, "at most 20000") for work in ("explore", "race")),
        *((work, {"method": "magic"}, "unknown method") for work in ("explore", "measure")),
        ("explore", {"block_size": 8, "second_block_size": 4}, "block γ₂ 4 is smaller than block γ 8"),
        ("explore", {"node_budget": 1.5}, "nodes B must be a whole number"),
        ("explore", {"seed": "7"}, "seed must be a whole number"),
        ("explore", {"model": "Qwen/Qwen3-8B"}, "this machine has no CUDA GPU and only 4 GB of free memory"),
        ("explore", {"vp": "/nowhere"}, "cannot load the drafter"),
        ("race", {"methods": []}, "no method is ticked"),
        ("measure", {"limit": 0}, "at least 1"),
        ("measure", {"limit": None}, "the number of prompts must be a whole number"),
        ("measure", {"source": "/etc/passwd"}, "there is no prompt set /etc/passwd; choose one of: chat, heldout"),
        ("measure", {"chat": True}, "has no chat template"),
        ("measure", {"source": "your prompts", "text": ""}, "your prompts: no prompts"),
        ("measure", {"source": "your prompts", "text": "x" * 30_000}, "longer than"),
        ("examine", {"limit": 0}, "between 1 and 60, not 0"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(work, changes, sentence, monkeypatch):
    monkeypatch.setattr(models.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(models.machine, "memory", lambda: 4e9)
    session = Session(shown=RecordedRun.of([{"event": "Header", "prompt": "before"}]))
    recordings = Recordings([Recording("before", RecordedRun())])
    works = {
        "explore": partial(test_explore.outcome, session),
        "race": test_race.run,
        "measure": partial(test_calibrate.updates, recordings),
        "examine": partial(examined, Job()),
    }
    *before, last = works[work](**changes)
    assert sentence in last.problem
    assert all(update.value is None for update in (*before, last))
    assert session.shown.header["prompt"] == "before"
    assert [r.label for r in recordings.runs] == ["before"]


@pytest.mark.parametrize("work", ["explore", "race", "measure"])
def test_work_stopped_while_models_load_leaves_its_tab(work, monkeypatch):
    monkeypatch.setattr(models, "loaded", lambda _: False)
    session = Session(shown=RecordedRun.of([{"event": "Header", "prompt": "before"}]))
    recordings = Recordings([Recording("before", RecordedRun())])
    job = Job()
    works = {
        "explore": lambda: explore.stream_run(session, job, test_explore.request()),
        "race": lambda: race.run_race(job, test_race.asked(), ["d2sd"]),
        "measure": lambda: test_calibrate.updates(recordings, job),
    }
    running = works[work]()
    assert next(running).news == "Loading tiny …"
    job.stopped = True
    assert all(update.value is None for update in running)
    assert session.shown.header["prompt"] == "before"
    assert [r.label for r in recordings.runs] == ["before"]


def test_stopped_examination_shows_what_it_has(monkeypatch):
    """Races, prompt sets, runs and replays are tested with their tabs."""
    monkeypatch.setattr(examination, "TOKENS", 8)
    job = Job()
    running = examined(job)
    assert next(update for update in running if update.news.startswith("Drafting over the texts"))
    job.stopped = True
    (last,) = running
    assert "Stopped before the end" in last.value
