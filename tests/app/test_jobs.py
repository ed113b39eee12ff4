"""Jobs of all tabs: requested, queued, run, stopped and answered. A late answer never replaces a newer one."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import gradio as gr
import pytest

from app import jobs, presets
from app.calibrate import measure
from app.calibrate.tab import _measure
from app.explore import tab as explore_tab
from app.explore.controls import build_controls
from app.explore.tab import build_explore, open_trace
from app.jobs import CANCELLED, NEXT, FileJobs, ModelJobs, QuestionJobs, Ticket, Update, sentence
from app.runs import tab as runs_tab
from app.runs.recordings import Recordings
from app.session import Session
from d2sd import InputError
from tests.app.event import Event, answered

WINDOW = SimpleNamespace(session_hash="w")


@pytest.fixture(autouse=True)
def no_queue(monkeypatch):
    """Gradio's queue exists only during a call of a page."""
    monkeypatch.setattr(jobs, "waiting", lambda _: [])


class Wired:
    """A button and its Stop button, wired to work with one output. The methods call their functions as Gradio does."""

    def __init__(self, work, ticket=None, kind=ModelJobs, **options):
        self.ticket = Ticket() if ticket is None else ticket
        with gr.Blocks() as page:
            button, stop = gr.Button(), gr.Button()
            jobs = kind(gr.State(self.ticket), gr.Textbox(), stop)
            worked = jobs.on(button.click, work, [], [gr.Textbox()], **options)
        by_target = {target: fn.fn for fn in page.fns.values() for target in fn.targets}
        self._tick = next((fn for (_, event), fn in by_target.items() if event == "tick"), None)
        self._request, self._cancel = by_target[button._id, "click"], by_target[stop._id, "click"]
        self._run = page.fns[worked["id"]].fn

    def request(self, *values, call=None, **data):
        """Press the button; returns the notice and the timer."""
        return self._request(WINDOW, Event(data), *values, self.ticket, call)

    def run(self, call=None):
        """Do the work that this call queued; returns pairs of output and notice."""
        return self._run(self.ticket, call)

    def stop(self):
        """Press Stop; returns the notice."""
        return self._cancel(self.ticket)

    def tick(self):
        """Let the timer of a waiting window tick; returns the notice and the timer."""
        return self._tick(self.ticket, WINDOW)


def counting(job):
    """Work that goes on until it is cancelled."""
    n = 0
    while not job.cancelled():
        n += 1
        yield Update(n, news=f"{n} …")
    yield Update(note="the end")


def broken(error):
    def work(_):
        yield Update(news="Loading …")
        raise error

    return work


def once(value):
    """Work with one update."""

    def work(_):
        yield Update(value)

    return work


def words(notices):
    return [None if notice == gr.skip() else notice.value for notice in notices]


def test_stopped_job_ends_without_further_output():
    """It only hides its news, which may reach the page after the answer to Stop."""
    wired = Wired(counting)
    assert wired.request()[0].visible is False
    running = wired.run()
    assert [next(running)[0], next(running)[1].value] == [1, "2 …"]
    assert wired.stop().visible is False
    assert [(value, notice.visible) for value, notice in running] == [(gr.skip(), False)]
    assert wired.ticket.job.ended


def test_job_stopped_in_its_last_part_hides_its_news():
    def loading(_):
        yield Update(news="Loading …")

    wired = Wired(loading)
    wired.request()
    running = wired.run()
    assert next(running)[1].value == "Loading …"
    wired.stop()
    assert [(value, notice.visible) for value, notice in running] == [(gr.skip(), False)]


def test_closed_window_frees_its_turn():
    wired = Wired(counting)
    wired.request()
    running = wired.run()
    next(running)
    assert jobs.TURNS.news(None)
    running.close()
    assert not jobs.TURNS.news(None)
    assert wired.ticket.job.ended


def test_job_stopped_while_waiting_never_starts():
    wired = Wired(counting)
    wired.request()
    assert wired.stop().value == CANCELLED
    assert wired.stop().visible is False  # reported only once
    assert list(wired.run()) == [[gr.skip(), gr.skip()]]


@pytest.mark.parametrize("work", [counting, broken(InputError("no"))], ids=["running", "failing"])
def test_newer_request_cancels_and_hides_running_job_of_its_window(work):
    wired, other = Wired(work), Wired(counting)
    for one in (wired, other):
        one.request()
    running, elsewhere = wired.run(), other.run()
    next(running), next(elsewhere)
    wired.request()
    assert list(running) == [[gr.skip(), gr.skip()]]
    assert wired.ticket.waiting
    assert next(elsewhere)[0] == 2


def test_double_click_runs_job_once():
    wired = Wired(once("run"))
    wired.request()
    wired.request()
    assert [output for output, _ in [*wired.run(), *wired.run()]] == ["run", gr.skip()]


def test_queued_call_starts_no_job_of_a_later_call():
    """It has the values that the form had before the later call."""
    wired = Wired(once("run"))
    for call in (1, 2):
        wired.request(call=call)
    assert [output for output, _ in wired.run(call=1)] == [gr.skip()]
    assert [output for output, _ in wired.run(call=2)] == ["run"]


def test_wanted_condition_can_skip_request():
    wired = Wired(counting, wanted=(gr.Radio(["a", "b"], render=False), lambda kind: kind == "a"))
    assert wired.request("b", call=2) == gr.skip()
    assert wired.ticket == Ticket()
    wired.request("a", call=1)
    assert wired.ticket.waiting


def test_views_sharing_ticket_start_own_jobs_only():
    ticket = Ticket()
    one, other = (Wired(work, ticket) for work in (counting, once("other")))
    one.request()
    other.request()
    assert [output for output, _ in one.run()] == [gr.skip()]
    assert [output for output, _ in other.run()] == ["other"]


def test_overtaken_request_is_dropped():
    wired = Wired(counting)
    wired.ticket.latest(5)
    assert wired.request(call=4) == gr.skip()
    assert not wired.ticket.waiting
    wired.request(call=6)
    assert wired.ticket.waiting
    assert wired.ticket.latest(None)  # a caller without call numbers
    assert wired.ticket.call == 6


@pytest.mark.parametrize(
    ("error", "problem", "logged"),
    [
        (RuntimeError("no kernel\nat /srv/x.py"), "The run stopped: no kernel", True),
        (
            MemoryError(),
            "The run stopped: there was not enough memory. Use fewer tokens or a shorter prompt.",
            False,
        ),
        (InputError("num_branches must be a whole number"), "branches K must be a whole number", False),
    ],
)
def test_job_error_is_one_sentence_and_unexpected_logged(caplog, error, problem, logged):
    wired = Wired(broken(error))
    wired.request()
    assert words(notice for _, notice in wired.run()) == ["Loading …", problem]
    assert [r.exc_info[1] for r in caplog.records if r.levelno >= logging.WARNING] == [error] * logged
    assert wired.ticket.job.ended


def test_in_view_job_answers_also_after_stop():
    asked = []

    def work(job):
        asked.append(job.data)
        yield Update("stopped" if job.cancelled() else "answer")

    wired = Wired(work, kind=QuestionJobs)
    assert wired.request(step=3)[0] == gr.skip()
    assert list(wired.run()) == [["answer", gr.skip()]]
    wired.request(step=4)
    wired.stop()
    assert list(wired.run()) == [["stopped", gr.skip()]]
    assert asked == [{"step": 3}, {"step": 4}]


def test_job_without_turn_reports_end_after_stop():
    wired = Wired(counting, kind=FileJobs)
    wired.request()
    running = wired.run()
    next(running)
    assert not jobs.TURNS.news(None)
    assert wired.stop() == gr.skip()
    assert words(notice for _, notice in running) == ["the end"]


def test_notice_repeats_until_newer_call():
    def work(_):
        yield Update(news="Loading …")
        yield Update("drawn")
        yield Update("more")
        wired.ticket.latest(3)
        yield Update("even more")
        yield Update()
        yield Update(note="done")

    wired = Wired(work)
    wired.request()
    loading, *empty, newer, nothing, done = (notice for _, notice in wired.run())
    assert (loading.value, done.value) == ("Loading …", "done")
    assert [notice.visible for notice in empty] == [False, False]  # repeated, since the client may have lost it
    assert (newer, nothing) == (gr.skip(), gr.skip())  # or it would hide the newer call's notice


def test_overtaken_answer_changes_nothing():
    ticket, shown = Ticket(), []

    def slow(call):
        ticket.latest(9)
        call.check()
        shown.append("late")

    def refused(_):
        ticket.latest(9)
        raise InputError("late")

    for work in (slow, refused, lambda _: ["late", sentence(note="late")]):
        assert answered(work, ticket, number=8) == [gr.skip(), gr.skip()]
    assert shown == []
    assert answered(lambda _: ["new", sentence()], ticket, number=10)[0] == "new"


def test_follow_up_of_a_call_does_not_overtake_other_calls(client):
    """An overtaken call has a follow-up, too. With the same ticket, this would overtake the call that overtook it."""
    calls = {call["id"]: call for call in client.calls}
    followers = [
        call for call in client.calls if "callsOfPage" in str(call["js"]) and call["trigger_after"] is not None
    ]
    assert len(followers) > 3
    for call in followers:
        *_, ticket, _ = call["inputs"]
        assert ticket not in calls[call["trigger_after"]]["inputs"]


def test_every_press_in_the_list_of_runs_is_sent(client):
    """By default, Gradio ignores a press while an earlier one is pending: a run moved down twice would move one place."""
    events = {"show", "rename", "move", "remove", "race"}
    calls = [call for call in client.calls if events & {event for _, event in call["targets"]}]
    names, ids = {event for call in calls for _, event in call["targets"]}, [call["id"] for call in calls]
    followers = [call for call in client.calls if call["trigger_after"] in ids]
    assert events <= names
    assert followers
    assert {call["trigger_mode"] for call in [*calls, *followers]} == {"multiple"}


def test_turns_news_gives_queue_place_and_wait_time():
    now = [0.0]
    turns, mine = jobs.ModelTurns(lambda: now[0]), Ticket()
    assert turns.news(mine) == ""
    with turns.turn("others"):
        assert turns.news(mine) == NEXT  # no turn has ended yet
        assert turns.news("others") == ""
        now[0] = 40.0
    with turns.turn("others"):
        now[0] = 55.0
        assert "2 more are ahead of yours. You are number 3 in the queue" in turns.news(mine, 2)
        waits = [turns.line(n).rpartition("wait is ")[2] for n in (0, 1, 2)]
        assert waits == ["about 30 s.", "about 70 s.", "about 2 minutes."]
        now[0] = 90.0  # longer than the previous turns
        assert turns.line(0).endswith("about 30 s.")
    with turns.turn("others", "race"):
        now[0] += 300
    with turns.turn("others"):  # lasts at most as long as earlier work of its kind
        assert turns.line(0).endswith("about 50 s.")


def test_queue_place_is_reported_once_per_change(monkeypatch):
    places = iter([0, 2, 2, 1, 1])
    wired = Wired(counting)
    wired.request()  # while nothing runs
    monkeypatch.setattr(jobs, "ahead", lambda _: next(places))
    assert wired.tick()[0] == gr.skip()
    monkeypatch.setattr(jobs, "waiting", lambda _: [WINDOW.session_hash])
    first, *notices = (wired.tick()[0] for _ in range(5))
    assert NEXT in first.value
    assert [notice == gr.skip() for notice in notices] == [False, True, False, True]
    assert "2 more are ahead" in notices[0].value


@pytest.fixture
def path(tmp_path):
    """An uploaded trace."""
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join([*presets.opening().lines(), ""]), encoding="utf-8")
    return str(file)


def test_overtaken_trace_upload_is_kept_but_not_shown(path, monkeypatch):
    session, read_all = Session(shown=presets.opening()), explore_tab.read_all

    def read_slowly(file):
        runs_and_note = read_all(file)
        session.latest(9)
        return runs_and_note

    monkeypatch.setattr(explore_tab, "read_all", read_slowly)
    before = session.shown
    answer = answered(open_trace, session, session, path, number=8)
    (kept,) = session.history.runs
    assert kept.label == "mine.jsonl"
    answer += answered(runs_tab.show_run, session, session, number=7, key=kept.run.key)
    assert session.shown is before
    assert all(part == gr.skip() for part in answer)
    assert answered(runs_tab.show_run, session, session, number=10, key=kept.run.key)[0] != gr.skip()


def test_figures_of_overtaken_file_read_are_dropped(path, monkeypatch):
    ticket, measured, explored = Ticket(), Recordings(), Session(shown=presets.opening())
    read_uploads, newer = measure.read_uploads, []

    def read_slowly(paths):
        runs = read_uploads(paths)
        newer.append(answered(_measure, ticket, "shown", measured, explored, None, None, number=2))
        return runs

    monkeypatch.setattr(measure, "read_uploads", read_slowly)
    late = answered(_measure, ticket, "files", measured, explored, [path], None, number=1)
    assert all(part == gr.skip() for part in late)
    assert newer[0][0] != gr.skip()
    assert measured.title == "The run in Explore"
    assert [s.title for s in explored.history.sets] == ["mine.jsonl"]  # the file that was read is kept


def test_run_button_label_resets_after_stop():
    session = Session()
    with gr.Blocks() as page:
        controls = build_controls()
        build_explore(gr.State(session), controls, gr.Tabs())
    pressed = next(f.fn for f in page.fns.values() if (controls.run._id, "click") in f.targets)
    *_, rest = (f.fn for f in page.fns.values() if f.fn and f.outputs == [controls.run])
    pressed(WINDOW, Event(), session, None)
    assert rest(session) == gr.skip()
    session.stop()
    assert rest(session).value == "Run"
