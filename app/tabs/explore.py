"""Explore: settings on the left, the run on the right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from app import explore, links, share, uploads
from app.session import Session
from app.settings import SETTINGS
from app.tabs.controls import Controls, build_controls
from app.tabs.notice import MODEL, ask, line_of, sentence
from app.update import TURNS
from app.views.explore import ExplorerView
from d2sd import InputError

CUT_OFF = "This recording breaks off before the end of its run. What it holds is shown."


def build_explore(page: gr.Blocks, session: gr.State) -> ExplorerView:
    """Lay out the tab and wire it; ``session`` holds the window's ``Session``. Returns the view of the run."""
    with gr.Row(elem_id="main-row"):
        with gr.Column(scale=0, min_width=290, elem_id="settings"):
            controls = build_controls()
        with gr.Column(scale=1, min_width=320):
            shown = session.value.shown
            view = ExplorerView(shown.segment() if len(shown) else None, linked=[s.name for s in SETTINGS])

    _wire_runs(session, controls, view)
    at_once: dict[str, Any] = {"show_progress": "hidden", "queue": False}
    controls.upload.upload(open_trace, [session, controls.upload], [view, controls.notice], show_progress="minimal")
    view.missed(send_again, session, view, **at_once)
    view.export(share.export, session, [view, controls.notice], **at_once)

    def restore(current: Session, request: gr.Request) -> list[Any]:
        link = current.link = links.read(request.query_params)
        step, said = gr.skip(), sentence(problem=link.sentence) if link.sentence else gr.skip()
        if link.wanted and len(current.shown) and link.fits(current.shown.header):
            step = current.shown.segment(len(current.shown), wanted=link.wanted)
        elif link.wanted and not link.sentence:
            said = sentence(note="The run of this link is not shown yet: press Run, and its step is selected.")
        return [*controls.restored(link), step, said]

    page.load(restore, session, [*controls.values, view, controls.notice], **at_once)
    return view


def _wire_runs(session: gr.State, controls: Controls, view: ExplorerView) -> None:
    def run(current: Session, number: int, *values: Any) -> Iterator[tuple[Any, Any]]:
        for update in TURNS.taken(current, explore.run(current, number, controls.asked(*values))):
            segment = gr.skip() if update.value is None else update.value
            yield segment, sentence(update.problem, update.news)

    # A request is counted at once, outside the queue, so that Stop and a second Run also reach runs that wait.
    number, line = gr.State(0), line_of(controls.notice, session)
    for trigger in (controls.run.click, controls.inputs["prompt"].submit):
        requested = trigger(ask, session, [number, controls.notice, line], show_progress="hidden", queue=False)
        requested.then(
            run,
            [session, number, *controls.values],
            [view, controls.notice],
            show_progress="hidden",
            concurrency_id=MODEL,
            concurrency_limit=1,
            trigger_mode="multiple",
        )
    controls.stop.click(Session.stop, session, None, show_progress="hidden", queue=False)


def open_trace(session: Session, path: str) -> tuple[Any, Any]:
    """Show a trace file instead of the run; where it cannot be read, say why and leave the run alone."""
    try:
        run = uploads.read(path)
    except InputError as error:
        return gr.skip(), sentence(problem=f"This trace was not opened: {error}.")
    return session.show(run), sentence(note="" if run.ended else CUT_OFF)


def send_again(session: Session, data: gr.EventData) -> Any:
    """The lines that the page asks for."""
    asked = data._data if isinstance(data._data, dict) else {}
    start = asked.get("start")
    if asked.get("key") != session.shown.key or not isinstance(start, int) or start < 0:
        start = 0
    return session.shown.segment(start) if len(session.shown) else gr.skip()
