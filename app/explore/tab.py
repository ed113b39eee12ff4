"""The Explore tab: the view of a run, and what it asks the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from app import models, presets
from app.explore.controls import Controls, ExploreTab, explorer_view
from app.explore.questions import answer_question, replay_settings
from app.explore.run import wire_run
from app.gradio_internals import event_fields
from app.jobs import AT_ONCE, FILES, Call, FileJobs, Job, Overtaken, QuestionJobs, Ticket, Update, answer, sentence
from app.machine import release_memory
from app.model_choice import download
from app.runs import share
from app.runs.recordings import read_all
from app.session import Session
from d2sd import InputError
from d2sd.trace.run import Message, MessageKind, Origin

CUT_OFF = "This recording is incomplete. Only the recorded steps are shown."


def build_explore(session: gr.State, controls: Controls, tabs: gr.Tabs) -> ExploreTab:
    """Lay out the tab and wire it; ``session`` holds the window's ``Session``. Returns the parts that change with the run."""
    opening = session.value.shown
    view = explorer_view(opening.segment(0, None, Origin(recorded=True)) if len(opening) else None)
    shown = ExploreTab(session, controls, view, controls.runs, tabs)
    wire_run(shown)
    _wire_download(shown)
    _wire_question(shown, "redraft")
    _wire_question(shown, "typed")
    _wire_replays(shown)
    upload, notice = controls.upload, controls.notice
    shown.after(answer(upload.upload, open_trace, session, [session, upload], [view], notice, show_progress="minimal"))
    view.missed(send_again, session, view, **AT_ONCE)
    view.export(share.export, session, [view, notice], **FILES)
    return shown


def _wire_question(shown: ExploreTab, name: MessageKind) -> None:
    """Wire a kind of question about the shown step. A question waits in the queue like a run, but cancels no run.

    name: a key of ``QUESTIONS``.
    """

    def run(job: Job, session: Session) -> Iterator[Update[str]]:
        for update in answer_question(name, job, session.shown):
            yield update.map(lambda answer: session.shown.message(Message(name, answer)))

    # the notice of a run stays, unless the question has to show its place in the queue
    jobs = QuestionJobs(gr.State(Ticket()), shown.controls.notice, shown.controls.stop)
    jobs.on(getattr(shown.view, name), run, [shown.session], [shown.view])


def _wire_replays(shown: ExploreTab) -> None:
    """Wire the request for replays of the shown run, and the view's own button that stops them."""
    jobs, view = QuestionJobs(gr.State(Ticket()), shown.controls.notice), shown.view
    jobs.on(view.replays, replay_settings, [shown.session], [view])
    view.halt(jobs.cancel, jobs.ticket, jobs.notice, **AT_ONCE)


def _wire_download(shown: ExploreTab) -> None:
    """Wire the button that downloads a target. The form then selects this target."""
    controls, form = shown.controls, shown.controls.inputs

    def get(job: Job, prompt: str) -> Iterator[Update[Any]]:
        gone, wanted = gr.Button(visible=False), models.to_get()
        if wanted is None:  # another window has downloaded it
            yield Update([gr.skip(), gr.skip(), gr.skip(), gone])
            return

        def select(name: str) -> list[Any]:
            example = next(iter(presets.examples(name).values()))
            typed = prompt.strip() and prompt not in presets.EXAMPLES.values()
            return [name, True, gr.skip() if typed else example, gone]

        for update in download(job, wanted):
            yield update.map(select)

    changed = [form["model"], form["chat"], form["prompt"], controls.get]
    FileJobs(shown.session, controls.told).on(controls.get.click, get, [form["prompt"]], changed)


def open_trace(call: Call, session: Session, path: str | None) -> tuple[Any, Any]:
    """Show the first run of a trace file or log, with a note. For a log, the note contains the findings about its drafter.

    A log that contains only totals has no run to show. If another run was requested while the file was read, the runs of the file
    are only added to the list.
    """
    selection, session.fetched = session.fetched, None
    if not path:
        raise InputError("Choose a trace file first.")
    try:
        runs, note = read_all(path)
    except InputError as error:
        raise InputError(f"This trace was not opened: {error}.") from None
    if not runs:
        return gr.skip(), sentence(note=note)
    release_memory()
    name = Path(path).name
    for number, run in reversed(list(enumerate(runs[1:], 2))):
        session.history.keep(run, "Opened", f"{number} of {name}")
    if call.overtaken():
        session.history.keep(runs[0], "Opened", name)
        raise Overtaken
    notice = sentence(note=note or ("" if runs[0].ended else CUT_OFF))
    return session.show(runs[0], "Opened", name, selection), notice


def send_again(session: Session, data: gr.EventData) -> Any:
    fields = event_fields(data)
    start = fields.get("start")
    if fields.get("key") != session.shown.key or not isinstance(start, int) or start < 0:
        start = 0
    return session.shown.segment(start) if len(session.shown) else gr.skip()
