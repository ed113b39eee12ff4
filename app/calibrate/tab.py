"""The Calibrate tab: sources on the left, figures on the right."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

import d2sd
from app import presets
from app.calibrate import measure as calibrate
from app.explore.controls import ExploreTab
from app.gradio_internals import View, hidden_when
from app.jobs import AT_ONCE, Call, Job, Ticket, Update, answer, notice_box, sentence, wire
from app.machine import give_back
from app.model_choice import build_models, follow_model, method_picker
from app.models import Chosen
from app.runs.recordings import FILE_TYPES, Recording, Recordings
from app.session import Session
from app.settings import remember, setting_rows
from app.view import FIGURES, drawn_view, fold_view
from d2sd import InputError
from d2sd.bench import prompts

NAMES = ("block_size", "num_branches", "temperature", "max_new_tokens", "chat")
SOURCES = {
    "A prompt set": "prompts",
    "The run in Explore": "shown",
    "Prompts of my own": "own",
    "Trace files and logs": "files",
}
RUN = ("prompts", "own")  # sources whose prompts are run
# Runs in the browser: a late answer of the server for an earlier source could hide the file field during an upload.
SHOW_CONTROLS = f"""kind => {{
  const run = {json.dumps(RUN)}.includes(kind), files = kind === 'files';
  return [run, kind === 'prompts', kind === 'own', files, files, run].map(visible => ({{ __type__: 'update', visible }}));
}}"""
CLOSE = "() => ({ __type__: 'update', visible: false })"
# elements: source, number of prompts, models, method, settings by name
PromptRequest = tuple[calibrate.PromptSource, float | None, Chosen, str, dict[str, Any]]


def figures_view() -> View:
    """Returns the view that draws ``calibrate.calibration_drawing``.

    Event ``select``: opens ``step`` of ``run`` in Explore; ``loaded``: whether Explore shows this run already.
    """
    sheets = ("calibrate/calibrate.css",)
    return drawn_view(None, "calibrate/main.js", constants=FIGURES, sheets=sheets, elem_id="calibration")


def build_calibrate(tab: gr.Tab, tabs: gr.Tabs, shown: ExploreTab) -> None:
    """Lay out the tab and wire it. ``shown``: the Explore tab, which has the run to measure and opens steps."""
    session = shown.session
    # A separate ticket: a run in Explore and a measurement wait for each other, but do not stop each other.
    ticket, recordings = gr.State(Ticket()), gr.State(Recordings())
    with gr.Row(elem_classes="beside"):
        with gr.Column(scale=0, min_width=290, elem_classes="settings"):
            source = gr.Radio(list(SOURCES.items()), value="prompts", label="Measure", elem_id="source")
            with gr.Row(elem_classes="buttons"):
                go = gr.Button("Measure", variant="primary", elem_id="measure", min_width=80)
                stop = gr.Button("Stop", elem_id="stop-measuring", min_width=80, visible=False)
            why = gr.Button("Why is it rejected?", elem_id="doctor")
            perfect = gr.Button("What would perfect confidence bring?", elem_id="perfect")
            notice = notice_box("calibrate-notice")
            inputs, group, bundled, mine = _prompt_set()
            uploads = gr.File(
                label="Traces, or logs of servers",
                file_count="multiple",
                file_types=FILE_TYPES,
                visible=False,
                elem_id="traces",
                height=150,
            )
            log = gr.Textbox(
                label="or paste a log",
                info="Lines that vLLM, SGLang or llama.cpp printed about drafts.",
                lines=3,
                max_lines=8,
                visible=False,
                elem_id="pasted-log",
            )
        with gr.Column(scale=1, min_width=320):
            with gr.Column(elem_id="doctor-drawer"):
                close = gr.Button("✕", elem_id="doctor-close", min_width=32)
                # text of logs and configs is already escaped; other HTML is sanitized
                report = gr.Markdown(
                    visible=False,
                    elem_id="doctor-report",
                    sanitize_html=True,
                    latex_delimiters=[],
                    buttons=["copy"],
                    container=True,
                )
            figures = figures_view()

    def quick(event: Any, function: Callable[..., Any]) -> None:
        inputs, outputs = [source, recordings, session, uploads, log], [figures, report]
        answer(event, function, ticket, inputs, outputs, notice, show_progress="hidden", concurrency_limit=4)

    quick(go.click, _measure)
    # These measurements are cheap, so they start without pressing Measure.
    quick(uploads.upload, _measure)
    quick(source.change, _measure_shown)
    source.change(None, source, [group, bundled, mine, uploads, log, why], js=SHOW_CONTROLS, **AT_ONCE)
    source.change(None, None, report, js=hidden_when("!document.querySelector('#doctor-report h1')"), **AT_ONCE)
    quick(tab.select, _measure_shown)
    wire(
        go.click,
        _measure_prompts,
        ticket,
        [source, recordings, session, *inputs],
        [figures],
        notice,
        stop=stop,
        wanted=(source, lambda kind: kind in RUN),
    )
    go.click(None, source, report, js=hidden_when(f"{json.dumps(RUN)}.includes(value)"), **AT_ONCE)
    close.click(None, None, report, js=CLOSE, **AT_ONCE)
    wire(why.click, _examine, ticket, [source, *inputs], [report], notice, stop=stop, stops=False)
    wire(perfect.click, _replay, ticket, [recordings, *inputs], [report], notice, stop=stop, stops=False)
    opened = answer(
        figures.select, _open, session, [session, recordings], [shown.view, tabs], notice, show_progress="hidden"
    )
    shown.after(opened)


def _measure(
    call: Call,
    kind: str,
    recordings: Recordings,
    session: Session,
    paths: list[str] | None,
    log: str | None,
) -> tuple[Any, Any, Any]:
    """Returns figures of the run in Explore or of trace files, and the findings of logs. Cancels a running measurement.

    For sources of prompts, changes nothing: ``_measure_prompts`` runs them.
    """
    found, bad, said = Recordings(), "", ""
    if kind in RUN:
        return gr.skip(), gr.skip(), gr.skip()
    call.check()
    call.ticket.replace(None)
    if kind == "shown":
        value = calibrate.shown(found, session.shown)
    else:
        said = calibrate.logs(paths, log)
        try:
            value, bad = calibrate.files(found, paths)
        except InputError:
            if not said:
                raise
            call.check()
            return gr.skip(), gr.Markdown(said, visible=True), sentence()
        session.history.keep_set(found.title, found.runs)
        give_back()
    call.check()
    recordings.runs, recordings.title = found.runs, found.title
    return value, gr.Markdown(said, visible=bool(said)), sentence(problem=bad)


def _measure_shown(call: Call, kind: str, recordings: Recordings, *values: Any) -> tuple[Any, Any, Any]:
    if kind == "shown":
        return _measure(call, kind, recordings, *values)
    drawn = None if recordings.title else calibrate.recorded(recordings)  # if nothing was measured yet
    return drawn or gr.skip(), gr.skip(), sentence()


def _measure_prompts(
    job: Job, kind: str, recordings: Recordings, session: Session, *values: Any
) -> Iterator[Update[str]]:
    title, runs = "", list[Recording]()
    for update in calibrate.prompts(job, recordings, *_prompt_request(kind, *values)):
        if update.value is not None:
            title, runs = recordings.title, recordings.runs
        yield update
    if runs:
        session.history.keep_set(title, runs)


def _examine(job: Job, *values: Any) -> Iterator[Update[gr.Markdown]]:
    source, limit, chosen, _, settings = _prompt_request(*values)
    for update in calibrate.report(job, source, limit, chosen, settings):
        # a stopped job shows its findings so far; a job replaced by another measurement shows nothing
        yield Update() if job.replaced else update.map(lambda found: gr.Markdown(found, visible=True))


def _replay(job: Job, recordings: Recordings, *values: Any) -> Iterator[Update[gr.Markdown]]:
    _, _, chosen, _, _ = _prompt_request("prompts", *values)
    for update in calibrate.perfect(job, recordings.runs, chosen):
        yield Update() if job.replaced else update.map(lambda found: gr.Markdown(found, visible=True))


def _prompt_request(kind: str, *values: Any) -> PromptRequest:
    """Returns the values of the controls as arguments of ``calibrate.prompts``. Raises ``InputError`` if the file is too large."""
    (bundled, pasted, path, limit), values = values[:4], values[4:]
    source = calibrate.PromptSource.read(kind, bundled, pasted, path)
    chosen, (method, *settings) = Chosen.read(*values[:3]), values[3:]
    return source, limit, chosen, method or "", dict(zip(NAMES, settings, strict=True))


def _open(call: Call, session: Session, recordings: Recordings) -> tuple[Any, Any, Any]:
    at = call.data.get("run")
    if not isinstance(at, int) or not 0 <= at < len(recordings.runs):
        raise InputError("This run is no longer stored; measure again.")
    if call.data.get("loaded"):
        return gr.skip(), gr.Tabs(selected="explore"), gr.skip()
    opened = recordings.runs[at]
    call.check()
    return session.show(opened.run, "Calibrate", opened.label), gr.Tabs(selected="explore"), sentence()


def _prompt_set() -> tuple[list[Any], gr.Column, gr.Dropdown, gr.Column]:
    """Build the controls of prompts.

    Returns the controls in the order of ``_prompt_request``'s parameters, the column of all these controls, the choice of a bundled
    set, and the column of the user's own prompts.
    """
    methods = [m for m, method in d2sd.METHODS.items() if method.first_drafter]
    fold_view("Prompts, models, settings", "prompt-set", elem_id="calibrate-fold")
    with gr.Column(elem_id="prompt-set", elem_classes="folded") as group:
        with gr.Column(visible=False) as mine:
            pasted = gr.Textbox(
                label="Prompts",
                info="One prompt per line. If prompts have several lines, separate them by empty lines.",
                placeholder='One per line, or JSON lines: {"prompt": "…", "domain": "…"}',
                lines=4,
                max_lines=10,
                elem_id="own-prompts",
            )
            gr.on(None, None, None, pasted, js=remember("own-prompts", [pasted]), **AT_ONCE)
            path = gr.File(
                label="or a file (.jsonl, .txt)", file_types=[".jsonl", ".txt"], elem_id="prompt-file", height=110
            )
        with gr.Group(elem_classes="small-numbers"), gr.Row():
            source = gr.Dropdown(
                prompts.names(),
                value=presets.prompt_set(presets.first_model()),
                label="Prompts",
                elem_id="prompt-source",
                min_width=90,
            )
            limit = gr.Number(24, label="How many", elem_id="how-many", min_width=90, precision=0)
        chosen = build_models("calibrate-")
        method = method_picker(methods, "d2sd", "calibrate-method")
        with gr.Group(elem_classes="small-numbers"):
            settings = setting_rows(NAMES, 2, "calibrate-")
        follow_model(chosen["model"], settings["chat"], settings["block_size"])
        model: Any = chosen["model"]
        model.input(presets.prompt_set, model, source, **AT_ONCE)
    return [source, pasted, path, limit, *chosen.values(), method, *settings.values()], group, source, mine
