"""Answers that come late: an older one changes neither what a newer one drew nor what it said."""

from __future__ import annotations

import json
from types import SimpleNamespace

import gradio as gr
import pytest

from app import calibrate, presets, uploads, work
from app.gradio_internals import asked
from app.jobs import Said, Ticket, Update
from app.page_session import Session
from app.recordings import Recordings
from app.tabs import calibrate as calibrate_tab
from app.tabs import compare as compare_tab
from app.tabs import notice
from app.tabs import runs as runs_tab
from app.tabs.calibrate import _compare_again, _measure, _measure_shown, _request
from app.tabs.compare import show
from app.tabs.doctor import wire
from app.tabs.explore import open_trace
from d2sd import InputError
from tests.app.event import Event


def call(number):
    """A request as the page numbers it."""
    return SimpleNamespace(headers={"x-asked": str(number)}, session_hash="w")


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join([*presets.opening().lines(), ""]), encoding="utf-8")
    return str(path)


def meanwhile(monkeypatch, module, name, act):
    """Let something newer happen while a function of a module works."""
    real = getattr(module, name)

    def slowly(*args, **kwargs):
        found = real(*args, **kwargs)
        act()
        return found

    monkeypatch.setattr(module, name, slowly)


def nothing(answer):
    return all(part == gr.skip() for part in answer)


@pytest.mark.parametrize("said", ["", "x", "-1", "1.5", "²", "9" * 20])
def test_a_caller_without_a_number_is_heard(said):
    assert asked(SimpleNamespace(headers={"x-asked": said})) is None
    ticket = Ticket(asked=7)
    assert ticket.latest(None)
    assert ticket.asked == 7


def test_figures_of_files_that_were_read_too_long_come_no_more(trace, monkeypatch):
    ticket, kept, explore = Ticket(), Recordings(), Session(shown=presets.opening())
    newer = []

    def press():
        newer.append(_measure("shown", ticket, kept, explore, None, None, call(2)))

    meanwhile(monkeypatch, calibrate, "read_uploads", press)
    assert nothing(_measure("files", ticket, kept, explore, [trace], None, call(1)))
    assert json.loads(newer[0][0])["progress"]["title"].startswith("The run in Explore")
    assert kept.title == "The run in Explore"
    assert [s.title for s in explore.history.sets] == ["mine.jsonl"]  # what was read is not lost


def test_an_older_choice_of_the_source_does_not_clear_a_newer_problem():
    ticket, kept, explore = Ticket(), Recordings(), Session()
    said = _measure("files", ticket, kept, explore, [], None, call(5))[1]
    assert said.value == "choose one or more trace files first"
    assert nothing(_measure_shown("files", ticket, kept, explore, [], None, call(4)))
    assert nothing(_request("prompts", ticket, call(3))[1:])
    assert not ticket.waiting
    assert _measure_shown("files", ticket, kept, explore, [], None, call(6))[1].visible is False


def test_a_comparison_that_was_not_the_last_one_is_not_drawn(trace, monkeypatch):
    ticket, explore = Ticket(), Session()
    kept = Recordings()
    _measure("files", ticket, kept, explore, [trace], None, call(1))
    again = lambda number: _compare_again(ticket, kept, explore, None, call(number))  # noqa: E731
    assert not nothing(again(2))
    meanwhile(monkeypatch, calibrate_tab.calibrate, "again", lambda: ticket.latest(4))
    assert nothing(again(3))
    meanwhile(monkeypatch, calibrate_tab.calibrate, "again", lambda: kept.runs.append(kept.runs[0]))
    assert nothing(again(5))


def test_two_sides_that_were_not_the_last_ones_are_not_drawn(trace, monkeypatch):
    ticket, session = Ticket(), Session()
    open_trace(session, trace)
    (name,) = [f"run {kept.run.key}" for kept in session.history.runs]
    assert not nothing(show(ticket, session, name, name, call(1)))
    meanwhile(monkeypatch, compare_tab, "drawing", lambda: show(ticket, session, None, None, call(3)))
    assert nothing(show(ticket, session, name, name, call(2)))


def test_a_trace_that_was_read_too_long_is_kept_but_not_shown(trace, monkeypatch):
    session = Session(shown=presets.opening())
    before = session.shown
    meanwhile(monkeypatch, uploads, "read_all", lambda: session.latest(9))
    assert nothing(open_trace(session, trace, call(8)))
    assert session.shown is before
    assert [kept.label for kept in session.history.runs] == ["mine.jsonl"]
    key = session.history.runs[0].run.key
    assert nothing(runs_tab.show(session, Event(key=key), call(7)))
    assert not nothing(runs_tab.show(session, Event(key=key), call(10)))


def test_work_that_goes_on_does_not_clear_what_was_said_meanwhile():
    ticket = Ticket()
    said = Said(ticket, ticket.request())
    assert said(Update(news="Loading …")).value == "Loading …"
    assert said(Update("drawn")).visible is False
    assert said(Update("more")).visible is False  # the client may have lost the one before
    ticket.latest(3)
    assert said(Update("more")) == gr.skip()  # else it would hide the problem of a file that was opened meanwhile
    assert said(Update()) == gr.skip()
    assert said(Update(note="done")).value == "done"
    ticket.stop()
    assert said(Update(problem="late")) == gr.skip()


@pytest.mark.parametrize(("act", "shown"), [(Ticket.stop, True), (Ticket.request, False)])
def test_a_report_that_was_stopped_is_shown_but_not_over_what_was_measured_meanwhile(monkeypatch, act, shown):
    from app.tabs import doctor

    ticket = Ticket()

    def report(current, *_):
        yield Update(news="drafting")
        act(current)
        yield Update("# Report")

    monkeypatch.setattr(doctor.doctor, "report", report)
    with gr.Blocks() as page:
        go, measure, notice = gr.Button(), gr.Button(), gr.Textbox()
        wire(go, measure, doctor.build_report(), notice, gr.State(ticket), [], lambda: (None, 1, None, "", {}))
    run = next(f.fn for f in page.fns.values() if getattr(f.fn, "__name__", "") == "run")
    *_, (found, said) = run(ticket, ticket.request())
    assert isinstance(found, gr.Markdown) is shown
    assert said == gr.skip()


def test_what_a_late_doctor_could_not_read_is_not_said():
    ticket = Ticket()

    def read():
        raise InputError("no")

    with gr.Blocks() as page:
        wire(gr.Button(), gr.Button(), gr.Markdown(), gr.Textbox(), gr.State(ticket), [], read)
    run = next(f.fn for f in page.fns.values() if getattr(f.fn, "__name__", "") == "run")
    assert [said.value for _, said in run(ticket, ticket.request())] == ["no"]
    assert [said for _, said in run(ticket, ticket.request() - 1)] == [gr.skip()]


def test_who_waits_is_told_how_many_are_ahead_and_how_long_that_takes(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(work.time, "monotonic", lambda: now[0])
    turns, mine = work.Turns(), Ticket()
    assert turns.news(mine) == ""
    others = turns.taken("others", iter([Update(news="a"), Update(news="b")]))
    next(others)
    assert turns.news(mine) == work.NEXT  # no turn has ended yet
    assert turns.news("others") == ""
    now[0] = 40.0
    list(others)
    list(turns.taken("nothing to do", iter([])))
    assert turns.news(mine) == ""
    assert turns.line(0).endswith("the wait is about 40 s.")
    others = turns.taken("others", iter([Update(news="a")]))
    next(others)
    now[0] = 55.0
    assert "2 more are ahead of yours: number 3 in the queue" in turns.news(mine, 2)
    assert [turns.line(n).rpartition("wait is ")[2] for n in (0, 1, 2)] == [
        "about 20 s.",
        "about 60 s.",
        "about 2 minutes.",
    ]
    now[0] = 90.0  # longer than the others took
    assert turns.line(0).endswith("less than 10 s.")


def test_a_place_is_told_once(monkeypatch):
    places = iter([2, 2, 1, 1])
    monkeypatch.setattr(notice, "ahead", lambda _: next(places))
    monkeypatch.setattr(notice, "waits", lambda _: True)
    ticket = Ticket()
    with gr.Blocks() as page:
        notice.line_of(gr.Textbox(), gr.State(ticket))
    tell = next(f.fn for f in page.fns.values() if getattr(f.fn, "__name__", "") == "tell")
    ticket.request()
    said = [tell(ticket, call(1))[0] for _ in range(4)]
    assert [part == gr.skip() for part in said] == [False, True, False, True]
    assert "2 more are ahead" in said[0].value
