"""The Calibrate tab: figures of what was measured, the comparison with another set, and the doctor's report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
import orjson

import d2sd
from app import presets
from app.calibrate import measure
from app.explore.controls import ExploreTab, RunToOpen, opens_run, run_buttons
from app.gradio_internals import View, hidden_when, inside
from app.jobs import AT_ONCE, BESIDE, Call, Job, ModelJobs, Ticket, Update, answer, notice_box, sentence
from app.machine import release_memory
from app.model_choice import method_picker
from app.race.pair import OTHER_MACHINE, pair_drawing, same_machine, side_by_side, side_names
from app.runs.recordings import FILE_TYPES, Recording, Recordings, RunSet
from app.runs.view import about
from app.session import Session
from app.settings import MEASURED, remember
from app.streaming import RunRequest
from app.view import FIGURES, drawn_view
from d2sd import InputError
from d2sd.bench import prompts

OTHERS = {"The run in Explore": "shown", "Prompts of my own": "own", "Trace files and logs": "files"}
# Runs in the browser: a late answer of the server for an earlier source could hide the file field during an upload. A source with fields of
# its own opens the drawer.
SHOW_CONTROLS = """kind => {
  const own = kind === 'own', files = kind === 'files', run = !files && kind !== 'shown';
  if (own || files) document.querySelector('#fold button[aria-expanded=false]')?.click();
  return [own, files, files, run, run].map(visible => ({ __type__: 'update', visible }));
}"""
RUNS = "!['shown', 'files'].includes(value)"  # whether the prompts of a source are run
FORM = ("model", "folder", "vp", "method", *MEASURED)  # the controls that a measurement reads, by name


def runs_prompts(kind: str) -> bool:
    """Returns whether the prompts of a source are run."""
    return kind not in ("shown", "files")


def figures_view() -> View:
    """Returns the view that draws ``measure.calibration_drawing``.

    Its event ``select`` opens ``step`` of ``run`` in Explore. ``loaded`` tells whether Explore shows this run already.
    """
    sheets = ("calibrate/calibrate.css",)
    return drawn_view(None, "calibrate/main.js", constants=FIGURES, sheets=sheets, elem_id="calibration")


def build_calibrate(tab: gr.Tab, shown: ExploreTab) -> None:
    """Lay out the tab and wire it. ``shown``: the Explore tab, which has the run to measure and opens steps."""
    session, controls, form = shown.session, shown.controls, shown.controls.inputs
    shape: dict[str, Any] = {"filterable": False, "min_width": 60}
    sets = [(f"Prompts: {name}", name) for name in prompts.names()]
    bundled = presets.prompt_set(presets.first_model())
    with inside(controls.bar):
        notice = notice_box("calibrate-notice")
        measured_row = gr.Row(elem_id="measured", elem_classes="in-tabs in-calibrate")
    with inside(measured_row):
        source = gr.Dropdown([*sets, *OTHERS.items()], value=bundled, label="Measure", elem_id="source", **shape)
        against = gr.Dropdown([ALONE], value="", label="Against", elem_id="against", **shape)
    with inside(controls.buttons):
        go, stop = run_buttons("Measure", "measure", "stop-measuring", "calibrate")
    with inside(controls.calibrate):
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
        with gr.Group(elem_classes="small-numbers"), gr.Row():
            limit = gr.Number(24, label="How many prompts", elem_id="how-many", min_width=90, precision=0)
        methods = [m for m, method in d2sd.METHODS.items() if method.first_drafter]
        method = method_picker(methods, "d2sd", "calibrate-method", "calibrate")

    def suit(chosen: str, kind: str) -> Any:
        return presets.prompt_set(chosen) if kind in prompts.names() else gr.skip()

    form["model"].input(suit, [form["model"], source], source, **AT_ONCE)
    # A separate ticket: a run in Explore and a measurement wait for each other, but do not stop each other.
    ticket, recordings = gr.State(Ticket()), gr.State(Recordings())
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
    with gr.Column(elem_id="questions"):
        why = gr.Button("Why is it rejected?", elem_id="doctor", size="sm")
        perfect = gr.Button("What would perfect confidence bring?", elem_id="perfect", size="sm")
    # the event ``select`` opens ``step`` of the run with this ``key`` in Explore
    compared = drawn_view(None, "calibrate/against.js", sheets=("race/race.css",), elem_id="compared")
    figures = figures_view()
    asked = [pasted, path, limit, *((form | {"method": method})[name] for name in FORM)]

    def quick(event: Any, function: Callable[..., Any]) -> Any:
        inputs, outputs = [source, recordings, session, uploads, log], [figures, report]
        return answer(event, function, ticket, inputs, outputs, notice, **BESIDE)

    measured = [quick(go.click, _measure)]
    # These measurements are cheap, so they start without pressing Measure.
    measured += [quick(uploads.upload, _measure), quick(source.change, _measure_shown)]
    source.change(None, source, [mine, uploads, log, why, limit], js=SHOW_CONTROLS, **AT_ONCE)
    source.change(None, None, report, js=hidden_when("!document.querySelector('#doctor-report h1')"), **AT_ONCE)
    measured.append(quick(tab.select, _measure_shown))
    given = [source, recordings, session, *asked]
    jobs = ModelJobs(ticket, notice, stop)
    measured.append(jobs.on(go.click, _measure_prompts, given, [figures], wanted=(source, runs_prompts)))
    compared_with, comparisons = [session, recordings, against], gr.State(Ticket())
    for event in (against.input, *(done.then for done in measured)):
        answer(event, compare_sets, comparisons, compared_with, [against, compared], notice, **BESIDE)
    go.click(None, source, report, js=hidden_when(RUNS), **AT_ONCE)
    close.click(None, None, report, js=hidden_when("true"), **AT_ONCE)
    jobs.on(why.click, _examine, [source, *asked], [report])
    jobs.on(perfect.click, _replay, [recordings, *asked], [report])
    shown.open_on(figures.select, _open, notice, [recordings])
    shown.open_on(compared.select, _open_side, notice, [recordings])


def _measure(
    call: Call,
    kind: str,
    recordings: Recordings,
    session: Session,
    paths: list[str] | None,
    log: str | None,
) -> tuple[Any, Any, Any]:
    """Returns figures of the run in Explore or of trace files, and the findings of logs. Cancels a running measurement.

    For sources whose prompts have to be run, nothing changes: ``_measure_prompts`` runs them.
    """
    measured, bad, said = Recordings(), "", ""
    if runs_prompts(kind):
        return gr.skip(), gr.skip(), gr.skip()
    call.check()
    call.ticket.replace(None)
    if kind == "shown":
        value = measure.measure_shown(measured, session.shown)
    else:
        said = measure.read_logs(paths, log)
        try:
            value, bad = measure.measure_files(measured, paths)
        except InputError:
            if not said:
                raise
            call.check()
            return gr.skip(), gr.Markdown(said, visible=True), sentence()
        session.history.keep_set(measured.title, measured.runs)
        release_memory()
    call.check()
    recordings.runs, recordings.title = measured.runs, measured.title
    return value, gr.Markdown(said, visible=bool(said)), sentence(problem=bad)


def _measure_shown(call: Call, kind: str, recordings: Recordings, *values: Any) -> tuple[Any, Any, Any]:
    if kind == "shown":
        return _measure(call, kind, recordings, *values)
    drawn = None if recordings.title else measure.measure_recorded(recordings)  # if nothing was measured yet
    return drawn or gr.skip(), gr.skip(), sentence()


def _measure_prompts(
    job: Job, kind: str, recordings: Recordings, session: Session, *values: Any
) -> Iterator[Update[str]]:
    title, runs = "", list[Recording]()
    for update in measure.measure_prompts(job, recordings, *_prompt_request(kind, *values)):
        if update.value is not None:
            title, runs = recordings.title, recordings.runs
        yield update
    if runs:
        session.history.keep_set(title, runs)


def _examine(job: Job, *values: Any) -> Iterator[Update[gr.Markdown]]:
    for update in measure.examine_drafter(job, *_prompt_request(*values)):
        # a stopped job shows its findings so far; a job replaced by another measurement shows nothing
        yield Update() if job.replaced else update.map(lambda report: gr.Markdown(report, visible=True))


def _replay(job: Job, recordings: Recordings, *values: Any) -> Iterator[Update[gr.Markdown]]:
    _, _, request = _prompt_request("prompts", *values)
    for update in measure.replay_perfectly(job, recordings.runs, request.models):
        yield Update() if job.replaced else update.map(lambda report: gr.Markdown(report, visible=True))


def _prompt_request(
    kind: str, pasted: str | None, path: str | None, limit: float | None, *values: Any
) -> tuple[measure.PromptSource, float | None, RunRequest]:
    """Returns the values of the controls as arguments of ``measure_prompts``. Raises ``InputError`` if the file is too large."""
    request = RunRequest.read(dict(zip(FORM, values, strict=True)))
    return measure.PromptSource.read(kind, pasted, path), limit, request


@opens_run
def _open(call: Call, session: Session, recordings: Recordings) -> RunToOpen | None:
    if call.data.get("loaded"):
        return None
    index, runs = call.data.get("run"), recordings.runs
    return _stored(runs[index] if isinstance(index, int) and 0 <= index < len(runs) else None)


@opens_run
def _open_side(call: Call, session: Session, recordings: Recordings) -> RunToOpen:
    """Returns the run whose key the call contains. It belongs to the measured set, or to a set with which it is compared."""
    runs = [*recordings.runs, *(kept for kept_set in session.history.sets for kept in kept_set.runs)]
    return _stored(next((kept for kept in runs if kept.run.key == call.data.get("key")), None))


def _stored(recording: Recording | None) -> RunToOpen:
    if recording is None:
        raise InputError("This run is no longer stored; measure again.")
    return recording.run, "Calibrate", recording.label


# The measured set against another one.

ALONE = ("against …", "")


def compare_sets(call: Call, session: Session, recordings: Recordings, against: str | None) -> tuple[Any, Any, Any]:
    """Returns the list of sets that share a prompt with the measured set, and the comparison with the chosen one of them."""
    if not recordings.runs:  # a measurement has begun
        return gr.skip(), "", gr.skip()
    runs = tuple(recordings.runs)
    mine = next((s for s in session.history.sets if s.runs == runs), RunSet(recordings.title, runs))
    prompts = {str(kept.header.get("prompt")) for kept in mine.runs}
    others = [
        s
        for s in session.history.sets
        if s.runs != mine.runs and prompts & {str(kept.header.get("prompt")) for kept in s.runs}
    ]
    chosen = next((s for s in others if s.title == against), None)
    titles = [(f"against {s.title} ({about(s.runs[0].header)})", s.title) for s in others]
    box = gr.Dropdown([ALONE, *titles], value=chosen.title if chosen else "")
    return box, sets_drawing(chosen, mine) if chosen else "", gr.skip()


def sets_drawing(a: RunSet, b: RunSet) -> str:
    """Returns the comparison of two sets as JSON: the finding, the figures that differ, and the common prompts with the texts of
    both sets.
    """
    names = side_names([a.statistics.headers, b.statistics.headers])
    doubt = "" if same_machine(a.statistics.headers, b.statistics.headers) else OTHER_MACHINE
    pair = pair_drawing(names, a.statistics, b.statistics, doubt)
    return orjson.dumps({**pair, "titles": [a.title, b.title], "pairs": list(side_by_side(a, b))}).decode()
