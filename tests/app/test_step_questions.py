"""Questions about a run, without a browser: answers, refusals, and answers that come late."""

from __future__ import annotations

import json
from unittest.mock import Mock

import pytest

from app import models, presets
from app.explore import questions
from app.jobs import Job
from app.runs.share import hand_out
from app.session import Session
from d2sd.folders.model_sets import ModelSet
from d2sd.trace.run import RecordedRun, unpack_line
from tests.page_client import Window

RUN = presets.opening()
STEP = RUN.instructive
RIGHT = "".join(c.text for c in RUN.trace().steps[STEP].committed[:3])


def data(**changes):
    return {"key": RUN.key, "step": STEP, "prefix": 3, "number": 7, **changes}


def updates(question="redraft", job=None, **changes):
    job = job or Job()
    job.data = data(**changes)
    return list(questions.answer_question(question, job, RUN))


def answer(*args, **changes):
    return updates(*args, **changes)[-1].value


@pytest.mark.parametrize(
    ("event", "fields", "expected"),
    [
        ("redraft", {"prefix": RUN.trace().steps[STEP].selected_prefixes[1]}, ('"same":true', '"number":7')),
        ("redraft", {"prefix": 9}, ('"same":null', '"texts":[')),
        ("typed", {"words": f"{RIGHT} zebra"}, ('"accepted":3', '"number":7')),
    ],
)
def test_step_question_events_are_answered_by_page(client, event, fields, expected):
    window, first = Window(client), client.call("explorer", event)
    (value,) = [c["props"]["value"] for c in client.components.values() if c["props"].get("elem_id") == "explorer"]
    window.at_once(first, client.values(first), data(key=json.loads(value.split("\n")[0])["key"], **fields))
    work = client.then(first)
    messages = list(window.queued(work, client.values(work)))
    sent = json.dumps([m.get("output") for m in messages]).replace("\\", "")
    assert [part for part in expected if part not in sent] == []


WRONG = [
    *(("redraft", {"step": step, "prefix": 4}) for step in (None, True, -1, 1.5, "1", 10**9, [], {})),
    *(("redraft", {"prefix": prefix}) for prefix in (None, 99, "x")),
    *(("typed", {"words": words}) for words in (None, 5, " ", "a" * 999)),
    *(("typed", {"words": "a", "step": step}) for step in ("x", 999)),
    ("redraft", {"key": "of another run"}),
]


@pytest.mark.parametrize(("question", "fields"), WRONG)
def test_unanswerable_step_question_is_one_sentence(question, fields):
    refusal = answer(question, **fields)
    assert refusal.keys() == {"number", "problem"}
    assert refusal["problem"].endswith(".")
    assert "failed" not in refusal["problem"]


def test_step_question_names_unloaded_models(monkeypatch):
    others = {"models": {"preset": None, "target": "/srv/big/target"}, "parts": {"target": {"weights": "0"}}}
    header = RUN.header | others
    monkeypatch.setattr(type(RUN), "header", property(lambda _: header))
    monkeypatch.setenv("SPACE_ID", "a/b")
    assert "(…/target) are not loaded here; choose them above and press Run" in answer()["problem"]


def test_step_question_finds_models_by_weights(monkeypatch, bundled):
    monkeypatch.setattr(models, "_engines", {})
    header = RUN.header
    assert models.loaded_for(header) is None
    first, last = updates()
    assert first.news == "Loading tiny …"
    assert last.value["same"] is True
    monkeypatch.setattr(models, "_engines", {ModelSet("mine"): bundled})
    assert models.loaded_for(header) == ModelSet("mine")
    assert models.loaded_for({**header, "parts": {}}) is None
    assert answer()["same"] is True


def test_stopped_step_question_is_answered_as_stopped():
    assert answer(job=Job(stopped=True)) == {"number": 7, "problem": questions.STOPPED}


def test_unexpected_step_question_error_is_one_sentence(monkeypatch):
    monkeypatch.setattr(models, "engine", Mock(side_effect=RuntimeError("no kernel\nat /srv/x.py")))
    assert answer()["problem"] == "The re-draft failed: no kernel."


# Replays with other K and γ


@pytest.fixture
def session(request):
    """A session whose run has two steps, or as many as the test's parameter, and no replays yet."""
    session, trace = Session(), RUN.trace()
    records = [trace.header, trace.prefill, *trace.steps[: getattr(request, "param", 2)], trace.finished, RUN.baseline]
    session.shown = session.history.keep(RecordedRun.of(records), "Explore")
    return session


def replays(session, job=None, **changes):
    """Yields the fields of the notes and lines for the page."""
    job = job or Job()
    job.data = {"key": session.shown.key, "number": 3, **changes}
    for update in questions.replay_settings(job, session):
        head, *lines = (update.value or "{}").splitlines()
        message = {k: v for k, v in json.loads(head).get("message", {}).items() if k != "kind"}
        yield message or (lines and json.loads(unpack_line(lines[0]))) or {"news": update.news}


@pytest.mark.parametrize("session", [None], indirect=True)  # all steps
def test_replays_show_progress_and_become_a_line_of_the_run_and_its_files(session):
    before = session.shown.lines()
    *progress, line = replays(session)
    total = progress[-1]["total"]
    assert [one["done"] for one in progress if "done" in one] == [*range(total + 1), total]
    assert line["event"] == "Replays"
    lesson = presets.lesson()
    assert (line["own"], line["points"]) == (lesson["own"], lesson["points"])
    assert line["here"]["verify"][0][0] == 1
    assert session.shown.lines() == before  # traces do not have them
    assert session.shown.lines(outcomes=True)[-1] == json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    assert len(hand_out(session.shown)) > len(hand_out(RecordedRun.of(RUN.trace().records())))


def test_replays_of_a_run_from_another_machine_have_no_times(session):
    session.history.runs[0].source = "Opened"
    *_, line = replays(session)
    assert line["here"] is None


def test_replays_stopped_in_the_queue_load_no_models(session, monkeypatch):
    monkeypatch.setattr(models, "engine", lambda _: pytest.fail("loaded"))
    assert list(replays(session, Job(stopped=True))) == [{"number": 3, "problem": questions.NOT_REPLAYED}]


@pytest.mark.parametrize("stop", [lambda job, _: setattr(job, "stopped", True), lambda _, session: session.replace(Job())], ids=["stopped", "a run is requested"])  # fmt: skip
def test_interrupted_replays_end_with_a_sentence(session, stop):
    job, size = Job(), len(session.shown)
    for fields in replays(session, job):
        if fields.get("done") == 2:
            stop(job, session)
        last = fields
    assert last == {"number": 3, "problem": questions.NOT_REPLAYED}
    assert len(session.shown) == size


def test_replays_of_a_run_that_is_no_longer_shown_stay_with_it(session):
    shown, job = session.shown, Job()
    for fields in replays(session, job):
        if fields.get("done") == 1:
            session.shown = presets.second()
        assert fields.get("event") != "Replays"
    assert shown.lines(outcomes=True)[-1].startswith('{"event":"Replays"')


@pytest.mark.parametrize(
    ("asked", "config", "words"),
    [
        ({"key": "of another run"}, {}, "no longer shown"),
        ({"key": None}, {}, "no longer shown"),
        ({}, {"temperature": 1.0}, "at temperature 0"),
        ({}, {"cost_aware": True}, "do not determine"),
    ],
)
def test_replays_refuse_other_runs(asked, config, words):
    header, *records = RUN.trace().records()
    run = RecordedRun.of([{**header, "config": {**header["config"], **config}}, *records])
    *_, last = replays(Session(shown=run), **asked)
    assert words in last["problem"]
