"""Controls → trace lines: what the page is fed, without a browser."""

from __future__ import annotations

import itertools
import json

import pytest

from app import controller, presets
from app.session import Session

GOOD = {
    "prompt": "One day, a cat", "model": "tiny", "method": "d2sd", "block_size": 16, "num_branches": 4, "temperature": 0,
    "top_p": 1, "seed": 0, "max_new_tokens": 24, "compare": True,
}  # fmt: skip


def outcome(session=None, **changes):
    session = session or Session()
    return list(controller.run(session, session.request(), **{**GOOD, **changes}))


def events(yields):
    return [json.loads(line) for line in yields[-1][0].splitlines()]


def test_a_run_is_a_growing_trace_with_a_measured_baseline():
    yields = outcome()
    for (before, _), (after, _) in itertools.pairwise(yields):
        assert after.startswith(before)
    kinds = [e["event"] for e in events(yields)]
    assert kinds[:2] == ["Header", "PrefillDone"]
    assert kinds[-2:] == ["Finished", "Baseline"]
    assert set(kinds[2:-2]) == {"StepDone"}
    assert events(yields)[-1]["tokens_per_second"] > 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"prompt": "  "}, "the prompt is empty"),
        ({"prompt": "a" * 30_000}, "at most 20000"),
        ({"block_size": 1}, "block_size must be at least 2"),
        ({"block_size": 4, "num_branches": 4}, "more than the 3 prefixes"),
        ({"temperature": -1}, "temperature must be"),
        ({"seed": None}, "seed must be a whole number"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"seed": float("inf")}, "seed must be a whole number"),
        ({"prompt": None}, "the prompt is empty"),
        ({"method": "magic"}, "unknown method"),
        ({"model": "magic"}, "unknown model"),
        ({"model": None}, "unknown model"),
        ({"max_new_tokens": 1e9}, "max_new_tokens must be between"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(changes, sentence):
    ((lines, notice),) = outcome(**changes)
    assert lines is None
    assert sentence in notice


def test_a_new_run_of_the_same_window_stops_the_old_one():
    session = Session()
    old = controller.run(session, session.request(), **{**GOOD, "max_new_tokens": 400})
    next(old)
    session.request()
    assert events(list(old))[-1]["stop_reason"] == "stopped"


def test_a_run_stopped_while_it_waited_never_starts():
    session = Session()
    waiting = controller.run(session, session.request(), **GOOD)
    session.stop()
    assert list(waiting) == []


def test_a_double_click_runs_once():
    session = Session()
    session.request()
    number = session.request()
    assert session.claim(number)
    assert list(controller.run(session, number, **GOOD)) == []


def test_windows_do_not_stop_each_other():
    one, other = Session(), Session()
    run = controller.run(one, one.request(), **GOOD)
    next(run)
    other.stop()
    assert events(list(run))[-2]["stop_reason"] != "stopped"


def test_a_run_that_breaks_off_says_so_and_keeps_its_steps(monkeypatch):
    engine = presets.engine("tiny")
    real = engine.target.head.forward
    calls = []

    def fail_later(*args):
        calls.append(1)
        if len(calls) > 6:
            raise MemoryError
        return real(*args)

    monkeypatch.setattr(engine.target.head, "forward", fail_later)
    lines = events(outcome())
    assert lines[-1]["event"] == "Failed"
    assert "not enough memory" in lines[-1]["sentence"]
    assert any(e["event"] == "StepDone" for e in lines)


def test_a_public_page_opens_no_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("SPACE_ID", "someone/space")
    ((_, notice),) = outcome(model=str(tmp_path))
    assert "offers only the bundled models" in notice
