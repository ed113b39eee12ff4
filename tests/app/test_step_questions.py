"""What is asked of a step, past the browser: answers, refusals, turns, and answers that come late."""

from __future__ import annotations

import json

import pytest

from app import models, presets
from app.explore import questions as step_questions
from app.jobs import Job
from app.layout import build, launch_options
from app.models import Chosen
from tests.page_client import PageClient, Window

RUN = presets.opening()
REDRAFT, TYPED = (step_questions.QUESTIONS[name] for name in ("redraft", "typed"))


@pytest.fixture(scope="module")
def client():
    page = build()
    _, address, _ = page.launch(**launch_options(), prevent_thread_lock=True, quiet=True, server_port=None)
    try:
        yield PageClient(address)
    finally:
        page.close(verbose=False)


def asked(**changes):
    return {"key": RUN.key, "step": 1, "prefix": 4, "number": 7, **changes}


def updates(question=REDRAFT, job=None, data=None, **changes):
    job = job or Job()
    job.data = asked(**changes) if data is None else data
    return list(step_questions.run(question, job, RUN))


def answer(*args, **changes):
    return updates(*args, **changes)[-1].value


def test_the_page_answers_a_click_in_the_view(client):
    window, first = Window(client), client.call("explorer", "redraft")
    step = RUN.trace().steps[1]
    (value,) = [c["props"]["value"] for c in client.components.values() if c["props"].get("elem_id") == "explorer"]
    key, said = json.loads(value.split("\n")[0])["key"], []
    for prefix, number in ((step.selected_prefixes[1], 1), (9, 2)):
        window.at_once(first, client.values(first), asked(key=key, prefix=prefix, number=number))
        work = client.then(first)
        messages = list(window.queued(work, client.values(work)))
        done = [m for m in messages if m["msg"] == "process_completed"][-1]
        assert done["success"]
        said.append(json.dumps([m.get("output") for m in messages]))
    head, late = (text.replace("\\", "") for text in said)
    assert '"same":true' in head
    assert '"number":1' in head
    assert '"same":null' in late
    assert '"texts":[' in late


def test_the_page_verifies_a_readers_own_draft(client):
    window, first = Window(client), client.call("explorer", "typed")
    (value,) = [c["props"]["value"] for c in client.components.values() if c["props"].get("elem_id") == "explorer"]
    right = "".join(c.text for c in RUN.trace().steps[1].committed[:3])
    question = {"key": json.loads(value.split("\n")[0])["key"], "step": 1, "number": 3, "words": f"{right} zebra"}
    window.at_once(first, client.values(first), question)
    work = client.then(first)
    messages = list(window.queued(work, client.values(work)))
    said = json.dumps([m.get("output") for m in messages]).replace("\\", "")
    assert '"number":3' in said
    assert '"accepted":3' in said


def test_a_readers_own_draft_is_verified_or_refused_in_a_sentence(monkeypatch):
    def typed(**fields):
        return answer(TYPED, data={"key": RUN.key, "step": 1, "number": 7, **fields})

    whole = "".join(c.text for c in RUN.trace().steps[1].committed)
    found = typed(words=whole)
    assert found["accepted"] == len(found["texts"]) == len(RUN.trace().steps[1].committed)
    assert found["number"] == 7
    for fields in (
        {},
        {"words": 5},
        {"words": "a", "step": "x"},
        {"words": " "},
        {"words": "a" * 999},
        {"words": "a", "step": 999},
    ):
        said = typed(**fields)
        assert said.keys() == {"number", "problem"}
        assert said["problem"].endswith(".")
        assert "failed" not in said["problem"]
    monkeypatch.setattr(step_questions, "_done", lambda *_: 1 / 0)
    assert typed(words="a")["problem"].startswith("The check failed: ")


@pytest.mark.parametrize("step", [None, True, -1, 1.5, "1", 10**9, [], {}])
@pytest.mark.parametrize("prefix", [4, None, 99, "x"])
def test_wrong_numbers_are_one_sentence(step, prefix):
    found = answer(step=step, prefix=prefix)
    assert found.keys() == {"number", "problem"}
    assert found["problem"].endswith(".")
    assert "failed" not in found["problem"]


def test_what_is_no_question_is_one_sentence_too():
    assert answer(data={}) == {
        "number": None,
        "problem": "This run is no longer shown; choose a step of the run that is.",
    }


def test_a_run_of_models_that_are_not_loaded_says_what_to_do(monkeypatch):
    run = presets.opening()
    header = {
        **run.header,
        "models": {"preset": None, "target": "/srv/big/target"},
        "parts": {"target": {"weights": "0"}},
    }
    monkeypatch.setattr(type(RUN), "header", property(lambda _: header))
    monkeypatch.setenv("SPACE_ID", "a/b")
    said = answer()["problem"]
    assert "(…/target) are not loaded here; choose them above and press Run" in said


def test_bundled_models_are_loaded_and_others_are_found_by_their_weights(monkeypatch, bundled):
    shelf = models._Shelf()
    monkeypatch.setattr(models, "_shelf", shelf)
    header = RUN.header
    assert models.loaded_for(header) is None
    first, last = updates()
    assert first.news == "Loading tiny …"
    assert last.value["same"] is True
    shelf.bundled.clear()
    shelf.other = Chosen("mine"), bundled
    assert models.loaded_for(header) == Chosen("mine")
    assert models.loaded_for({**header, "parts": {}}) is None
    assert answer()["same"] is True


def test_an_answer_that_a_newer_question_overtook_is_not_given(monkeypatch):
    job, real = Job(), step_questions._done

    def slowly(*args):
        job.replaced = True
        return real(*args)

    monkeypatch.setattr(step_questions, "_done", slowly)
    assert [u.value for u in updates(job=job) if not u.news] == []


def test_a_question_that_was_stopped_while_it_waited_is_answered_so():
    assert answer(job=Job(stopped=True)) == {"number": 7, "problem": step_questions.STOPPED}


def test_what_nobody_expected_is_a_sentence(monkeypatch):
    def broken(*_):
        raise RuntimeError("no kernel\nat /srv/x.py")

    monkeypatch.setattr(step_questions, "_done", broken)
    assert answer()["problem"] == "The re-draft failed: no kernel."
