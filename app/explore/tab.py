"""Explore: settings on the left, the run on the right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from app import model_choice as getting
from app import models, presets
from app.explore import questions as step_questions
from app.explore import run as explore
from app.explore.controls import ExplorerView, build_controls
from app.gradio_internals import asked as asked_as
from app.gradio_internals import told
from app.machine import give_back
from app.runs import recordings as uploads
from app.runs import share
from app.runs.tab import AT_ONCE, FILES, Shown
from app.runs.view import RunsView
from app.session import Session
from app.settings import SETTINGS
from app.tabs.notice import IN_TURN, Said, ask, line_of, sentence, stopped
from app.work import TURNS, Ticket, Update
from d2sd import InputError

LINES_BEFORE_STEPS = 3  # header, prompt, and the first step
CUT_OFF = "This recording ends before its run does. The recorded steps are shown."


RUN = "Run"


def doing(update: Update[str], session: Session) -> str:
    """Returns the text of the Run button while a run is in progress."""
    if update.news:
        return "Waiting …" if session.waiting else "Loading …"
    if session.shown.ended:
        return "Timing plain decoding …"
    return "Reading the prompt …" if len(session.shown) < LINES_BEFORE_STEPS else "Writing …"


def build_explore(session: gr.State) -> Shown:
    """Lay out the tab and wire it; ``session`` holds the window's ``Session``. Returns what changes with the shown run."""
    with gr.Row(elem_id="main-row"):
        with gr.Column(scale=0, min_width=290, elem_id="settings"):
            controls = build_controls()
            runs = RunsView()
        with gr.Column(scale=1, min_width=320):
            first = session.value.shown
            view = ExplorerView(first.segment() if len(first) else None, linked=[s.name for s in SETTINGS])

    shown = Shown(session, controls, view, runs, controls.back)
    _wire_runs(shown)
    _wire_getting(shown)
    for name, event in ("redraft", view.redraft), ("typed", view.typed):
        _wire_question(shown, name, event)
    opened = controls.upload.upload(
        open_trace, [session, controls.upload], [view, controls.notice], show_progress="minimal"
    )
    shown.after(opened)
    view.missed(send_again, session, view, **AT_ONCE)
    view.export(share.export, session, [view, controls.notice], **FILES)
    return shown


def _wire_runs(shown: Shown) -> None:
    session, controls, view = shown.session, shown.controls, shown.view

    def run(current: Session, number: int, *values: Any) -> Iterator[tuple[Any, ...]]:
        before, said = current.shown, Said(current, number)
        for update in TURNS.taken(current, explore.run(current, number, controls.asked(*values))):
            segment = gr.skip() if update.value is None else update.value
            listed: tuple[Any, Any] = (gr.skip(), gr.skip())
            if update.value is not None and current.shown is not before:
                before, listed = current.shown, shown.started(current)
            yield segment, said(update), *listed, gr.Button(doing(update, current))
        # Nothing is sent after the last values: Gradio's client applies the differences of two updates that arrive at
        # once to one object, so a skip behind them would delete them.

    def rest(current: Session, mine: int) -> Any:
        return gr.Button(RUN) if current.newest == mine else gr.skip()

    # A request is counted at once, outside the queue, so that Stop and a second Run also reach runs that wait.
    number, line = gr.State(0), line_of(controls.notice, session)
    for trigger in (controls.run.click, controls.inputs["prompt"].submit):
        requested = trigger(ask, session, [number, controls.notice, line], show_progress="hidden", queue=False)
        requested.then(
            run,
            [session, number, *controls.values],
            [view, controls.notice, shown.back, shown.runs, controls.run],
            **IN_TURN,
        ).then(rest, [session, number], controls.run, **AT_ONCE)

    def stop(current: Session) -> Any:
        own = current.getting
        said = stopped(current)
        return gr.skip() if own else said

    controls.stop.click(stop, session, controls.notice, show_progress="hidden", queue=False)


def _wire_question(shown: Shown, name: str, event: Any) -> None:
    """A question about the shown step: it takes its turn as a run does, without cancelling the run of this window.

    name: of the kind of question; ``event``: with which the view asks it.
    """
    controls, ticket, question = shown.controls, gr.State(Ticket()), step_questions.QUESTIONS[name]
    number, wanted, line = gr.State(0), gr.State({}), line_of(controls.notice, ticket)

    def count(current: Ticket, data: gr.EventData, request: gr.Request) -> tuple[Any, ...]:
        if not current.latest(asked_as(request)):
            return gr.skip(), gr.skip(), gr.skip(), gr.skip()
        mine, said, timer = ask(current, request)
        # what the notice says of a run stays, unless there is a place in the line to tell of
        return mine, told(data), said if current.place >= 0 else gr.skip(), timer

    def run(session: Session, current: Ticket, mine: int, asked: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
        said, speaks = Said(current, mine), current.place >= 0
        for update in TURNS.taken(current, step_questions.run(question, current, mine, session.shown, asked)):
            speaks = speaks or bool(update.news)
            run = session.shown
            answer = gr.skip() if update.value is None else run.note(**{name: update.value})
            yield answer, said(update) if speaks else gr.skip()

    requested = event(count, ticket, [number, wanted, controls.notice, line], show_progress="hidden", queue=False)
    requested.then(
        run,
        [shown.session, ticket, number, wanted],
        [shown.view, controls.notice],
        **IN_TURN,
    )

    def stop(current: Ticket) -> None:
        current.stop()

    controls.stop.click(stop, ticket, None, show_progress="hidden", queue=False)


def _wire_getting(shown: Shown) -> None:
    """Wire the button that downloads a target, which the form then selects."""
    controls = shown.controls
    number = gr.State(0)

    def get(current: Session, mine: int, prompt: str) -> Iterator[tuple[Any, ...]]:
        wanted = models.to_get()
        if wanted is None:  # somebody else has got it meanwhile
            yield gr.skip(), gr.skip(), gr.skip(), gr.Button(visible=False), sentence()
            return
        for update in getting.run(current, mine, wanted):
            said = sentence(update.problem, update.news, update.note)
            if update.value is None:
                yield gr.skip(), gr.skip(), gr.skip(), gr.skip(), said
                continue
            first = next(iter(presets.examples(update.value).values()))
            own = prompt.strip() and prompt not in presets.EXAMPLES.values()
            yield update.value, True, gr.skip() if own else first, gr.Button(visible=False), said

    form = controls.inputs
    asked = controls.get.click(lambda s: s.request(), shown.session, number, show_progress="hidden", queue=False)
    asked.then(
        get,
        [shown.session, number, form["prompt"]],
        [form["model"], form["chat"], form["prompt"], controls.get, controls.notice],
        show_progress="hidden",
        concurrency_limit=4,
    )


def open_trace(session: Session, path: str | None, request: gr.Request | None = None) -> tuple[Any, Any]:
    """Show a trace file instead of the run; if it cannot be read, say why and keep the run.

    If another run was requested while the file was read, the trace is only added to the list.
    """
    number, wanted, session.fetched = asked_as(request), session.fetched, None
    session.latest(number)
    if not path:
        return gr.skip(), sentence(problem="Choose a trace file first.")
    try:
        runs, note = uploads.read_all(path)
    except InputError as error:
        said = sentence(problem=f"This trace was not opened: {error}.")
        return gr.skip(), said if session.latest(number) else gr.skip()
    give_back()
    name = Path(path).name
    for number, run in reversed(list(enumerate(runs[1:], 2))):
        session.history.keep(run, "Opened", f"{number} of {name}")
    if not session.latest(number):
        session.history.keep(runs[0], "Opened", name)
        return gr.skip(), gr.skip()
    said = sentence(note=note or ("" if runs[0].ended else CUT_OFF))
    return session.show(runs[0], "Opened", name, wanted=wanted), said


def send_again(session: Session, data: gr.EventData) -> Any:
    """Returns the lines that the page requests."""
    asked = told(data)
    start = asked.get("start")
    if asked.get("key") != session.shown.key or not isinstance(start, int) or start < 0:
        start = 0
    return session.shown.segment(start) if len(session.shown) else gr.skip()
