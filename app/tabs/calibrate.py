"""Calibrate: can the drafter's confidence be trusted? Source on the left, figures on the right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

import d2sd
from app import calibrate
from app.models import Chosen
from app.recordings import Recordings
from app.session import Session
from app.tabs.model_choice import build_models
from app.tabs.notice import MODEL, ask, line_of, notice_box, sentence
from app.tabs.setting_box import setting_rows
from app.update import TURNS
from app.views.calibrate import CalibrationView
from app.views.explore import ExplorerView
from d2sd.bench import prompts

NAMES = ("block_size", "num_branches", "temperature", "max_new_tokens", "chat")
SOURCES = {"The run in Explore": "shown", "A prompt set": "prompts", "Trace files": "files"}


def build_calibrate(tab: gr.Tab, tabs: gr.Tabs, explore: gr.State, view: ExplorerView) -> None:
    """Lay out the tab and wire it. ``explore`` is the session of Explore, whose run is measured; steps open in ``view``."""
    # Its own session: a run in Explore and a measurement wait for each other, but do not stop each other.
    session, recordings, number = gr.State(Session()), gr.State(Recordings()), gr.State(0)
    with gr.Row(elem_classes="beside"):
        with gr.Column(scale=0, min_width=290, elem_classes="settings"):
            source = gr.Radio(list(SOURCES.items()), value="shown", label="Measure", elem_id="source")
            inputs, group = _prompt_set()
            uploads = gr.File(
                label="Traces (.jsonl, .jsonl.gz)",
                file_count="multiple",
                file_types=[".jsonl", ".gz"],
                visible=False,
                elem_id="traces",
                height=150,
            )
            with gr.Row(elem_classes="buttons"):
                go = gr.Button("Measure", variant="primary", elem_id="measure", min_width=80)
                stop = gr.Button("Stop", elem_id="stop-measuring", min_width=80, visible=False)
            notice = notice_box("calibrate-notice")
        with gr.Column(scale=1, min_width=320):
            figures = CalibrationView()

    def choose(kind: str) -> tuple[gr.Column, gr.File, gr.Button]:
        return (
            gr.Column(visible=kind == "prompts"),
            gr.File(visible=kind == "files"),
            gr.Button(visible=kind == "prompts"),
        )

    source.change(choose, source, [group, uploads, stop], show_progress="hidden", queue=False)

    outputs: list[Any] = [figures, notice]
    given = [source, recordings, explore, uploads]
    quick: dict[str, Any] = {"show_progress": "hidden", "concurrency_limit": 4}
    go.click(_measure, given, outputs, **quick)
    # What costs nothing is shown without being asked for.
    uploads.upload(_measure, given, outputs, **quick)
    source.change(_measure_shown, given, outputs, **quick)
    tab.select(_measure_shown, given, outputs, **quick)
    requested = go.click(
        _request, [source, session], [number, notice, line_of(notice, session)], show_progress="hidden", queue=False
    )
    requested.then(
        _measure_prompts,
        [source, session, number, recordings, *inputs],
        outputs,
        show_progress="hidden",
        concurrency_id=MODEL,
        concurrency_limit=1,
        trigger_mode="multiple",
    )
    stop.click(Session.stop, session, None, show_progress="hidden", queue=False)
    figures.select(_open, [explore, recordings], [view, tabs, notice], show_progress="hidden")


def _measure(kind: str, kept: Recordings, explore: Session, paths: list[str] | None) -> tuple[Any, Any]:
    """Figures of the run in Explore or of trace files; nothing for a prompt set, which is run step by step."""
    if kind == "prompts":
        return gr.skip(), gr.skip()
    return _answer(lambda: calibrate.shown(kept, explore.shown) if kind == "shown" else calibrate.files(kept, paths))


def _measure_shown(kind: str, kept: Recordings, explore: Session, paths: list[str] | None) -> tuple[Any, Any]:
    return _measure(kind, kept, explore, paths) if kind == "shown" else (gr.skip(), sentence())


def _answer(work: Callable[[], str]) -> tuple[Any, gr.Textbox]:
    """What to draw and the notice; a sentence, and the drawing as it was, where the input cannot be used."""
    try:
        return work(), sentence()
    except d2sd.InputError as error:
        return gr.skip(), sentence(problem=f"{error}")


def _request(kind: str, session: Session, request: gr.Request) -> tuple[int, Any, Any]:
    return ask(session, request) if kind == "prompts" else (session.request(), gr.skip(), gr.skip())


def _measure_prompts(
    kind: str, session: Session, number: int, recordings: Recordings, *values: Any
) -> Iterator[tuple[Any, gr.Textbox]]:
    if kind != "prompts":
        yield gr.skip(), gr.skip()
        return
    for update in TURNS.taken(session, calibrate.prompts(session, number, recordings, *_asked(*values))):
        yield gr.skip() if update.value is None else update.value, sentence(update.problem, update.news)


def _asked(source: str, limit: float | None, *values: Any) -> tuple[Any, ...]:
    """From the values of the controls to the arguments of ``calibrate.prompts``."""
    chosen, (method, *settings) = Chosen.read(*values[:3]), values[3:]
    return source, limit, chosen, method or "", dict(zip(NAMES, settings, strict=True))


def _open(explore: Session, recordings: Recordings, event: gr.EventData) -> tuple[Any, gr.Tabs, gr.Textbox]:
    """Show a measured run in Explore (the page then selects the step there)."""
    asked = event._data if isinstance(event._data, dict) else {}
    at = asked.get("run")
    if not isinstance(at, int) or not 0 <= at < len(recordings.runs):
        return gr.skip(), gr.skip(), sentence("This run is no longer there; measure again.")
    if asked.get("loaded"):
        return gr.skip(), gr.Tabs(selected="explore"), gr.skip()
    try:
        run = recordings.runs[at].run()
    except d2sd.InputError as error:
        return gr.skip(), gr.skip(), sentence(f"{error}")
    return explore.show(run), gr.Tabs(selected="explore"), sentence()


def _prompt_set() -> tuple[list[Any], gr.Column]:
    """The controls of a prompt set, in the order of ``_asked``'s arguments."""
    names = prompts.names()
    methods = [m for m, method in d2sd.METHODS.items() if method.first_drafter]
    with gr.Column(visible=False, elem_id="prompt-set") as group:
        with gr.Group(), gr.Row():
            source = gr.Dropdown(names, value=names[0], label="Prompts", elem_id="prompt-source", min_width=90)
            limit = gr.Number(24, label="How many", elem_id="how-many", min_width=90, precision=0)
        chosen = build_models("calibrate-")
        method = gr.Dropdown(methods, value="d2sd", label="Method", elem_id="calibrate-method")
        with gr.Group(elem_classes="small-numbers"):
            settings = setting_rows(NAMES, 2, "calibrate-")
    return [source, limit, *chosen.values(), method, *settings.values()], group
