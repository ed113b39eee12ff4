"""The Calibrate tab: source on the left, figures on the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr

import d2sd
from app import presets
from app.calibrate import measure as calibrate
from app.calibrate import measure as doctor
from app.calibrate.view import CalibrationView
from app.compare import compare
from app.gradio_internals import asked as asked_as
from app.gradio_internals import hidden_when, told
from app.guard import MAX_CHARACTERS
from app.machine import give_back
from app.model_choice import PickerView, build_models, follow_model
from app.models import Chosen, grouped
from app.runs.recordings import Recording, Recordings, RunSet
from app.runs.tab import Shown
from app.session import Session
from app.settings import remember, setting_rows
from app.tabs.notice import IN_TURN, Said, ask, line_of, notice_box, sentence, stopped
from app.work import TURNS, Ticket, Update
from d2sd.bench import prompts

# “Why is it rejected?”: a button of Calibrate, and the doctor's report on the chosen drafter.


Asked = tuple[doctor.PromptSource, float | None, Chosen, str, dict[str, Any]]


def build_report() -> gr.Markdown:
    """Returns the component for the report. Foreign text in it is escaped, and remaining HTML is sanitized."""
    return gr.Markdown(
        visible=False,
        elem_id="doctor-report",
        sanitize_html=True,
        latex_delimiters=[],
        buttons=["copy"],
        container=True,
    )


def wire(
    go: gr.Button,
    measure: gr.Button,
    report: gr.Markdown,
    notice: gr.Textbox,
    ticket: gr.State,
    given: Sequence[Any],
    read: Any,
) -> None:
    """Wire the button to the doctor, and remove the report when something is measured later.

    given: the source and its controls.
    read: maps the values of these controls to the controller's arguments.
    """
    number = gr.State(0)

    def request(current: Ticket, request: gr.Request) -> tuple[int, Any, Any]:
        return ask(current, request)

    def run(current: Ticket, own: int, *values: Any) -> Iterator[tuple[Any, Any]]:
        said = Said(current, own)
        try:
            source, limit, chosen, _, settings = read(*values)
        except d2sd.InputError as error:
            yield gr.skip(), said(Update(problem=f"{error}"))
            return
        for update in TURNS.taken(current, doctor.report(current, own, source, limit, chosen, settings)):
            # stopped, it tells what was found by then; it never covers what was measured meanwhile
            nothing = update.value is None or current.replaced(own)
            yield gr.skip() if nothing else gr.Markdown(update.value, visible=True), said(update)

    measure.click(None, None, report, js=hidden_when("true"), show_progress="hidden", queue=False)
    asked = go.click(request, ticket, [number, notice, line_of(notice, ticket)], show_progress="hidden", queue=False)
    asked.then(run, [ticket, number, *given], [report, notice], **IN_TURN)


NAMES = ("block_size", "num_branches", "temperature", "max_new_tokens", "chat")
SOURCES = {
    "The run in Explore": "shown",
    "A prompt set": "prompts",
    "Prompts of my own": "own",
    "Trace files": "files",
}
RUN = ("prompts", "own")  # the sources that are run step by step
NOTHING = "nothing"
NO_ANSWER = (gr.skip(), gr.skip())
NOT_ASKED = -1  # the number of work that nobody asked for


def build_calibrate(tab: gr.Tab, tabs: gr.Tabs, shown: Shown) -> None:
    """Lay out the tab and wire it. ``shown``: Explore, whose run is measured and where steps are opened."""
    explore = shown.session
    # Its own ticket: a run in Explore and a measurement wait for each other, but do not stop each other.
    ticket, recordings, number = gr.State(Ticket()), gr.State(Recordings()), gr.State(0)
    with gr.Row(elem_classes="beside"):
        with gr.Column(scale=0, min_width=290, elem_classes="settings"):
            source = gr.Radio(list(SOURCES.items()), value="shown", label="Measure", elem_id="source")
            with gr.Row(elem_classes="buttons"):
                go = gr.Button("Measure", variant="primary", elem_id="measure", min_width=80)
                stop = gr.Button("Stop", elem_id="stop-measuring", min_width=80, visible=False)
            why = gr.Button("Why is it rejected?", elem_id="doctor", visible=False)
            notice = notice_box("calibrate-notice")
            inputs, group, bundled, mine = _prompt_set()
            uploads = gr.File(
                label="Traces (.jsonl, .jsonl.gz)",
                file_count="multiple",
                file_types=[".jsonl", ".json", ".gz"],
                visible=False,
                elem_id="traces",
                height=150,
            )
            against = gr.Dropdown(
                [("nothing", NOTHING)],
                value=NOTHING,
                label="Compare with (A)",
                info="The set that you measure becomes B.",
                elem_id="against",
            )
        with gr.Column(scale=1, min_width=320):
            report = build_report()
            figures = CalibrationView()

    def choose(kind: str) -> list[Any]:
        run = kind in RUN
        return [
            gr.Column(visible=run),
            gr.Dropdown(visible=kind == "prompts"),
            gr.Column(visible=kind == "own"),
            gr.File(visible=kind == "files"),
            gr.Button(visible=run),
            gr.Button(visible=True) if run else gr.skip(),  # what was started with another choice may go on
        ]

    source.change(choose, source, [group, bundled, mine, uploads, why, stop], show_progress="hidden", queue=False)

    outputs: list[Any] = [figures, notice]
    given = [source, ticket, recordings, explore, uploads, against]
    quick: dict[str, Any] = {"show_progress": "hidden", "concurrency_limit": 4}

    def offer(current: Session, chosen: str) -> gr.Dropdown:
        """Returns the current runs and sets to choose from."""
        known = [("nothing", NOTHING), *compare.choices(current.history)]
        return gr.Dropdown(choices=known, value=chosen if chosen in dict(known).values() else NOTHING)

    def offered(event: Any) -> None:
        event.then(offer, [explore, against], against, show_progress="hidden", queue=False)

    go.click(_measure, given, outputs, **quick)
    # What costs nothing is shown without being asked for.
    offered(uploads.upload(_measure, given, outputs, **quick))
    source.change(_measure_shown, given, outputs, **quick)
    offered(tab.select(_measure_shown, given, outputs, **quick))
    against.input(_compare_again, [ticket, recordings, explore, against], outputs, **quick)
    requested = go.click(
        _request, [source, ticket], [number, notice, line_of(notice, ticket)], show_progress="hidden", queue=False
    )
    measured = requested.then(
        _measure_prompts,
        [source, ticket, number, recordings, explore, against, *inputs],
        outputs,
        **IN_TURN,
    )
    offered(measured)
    wire(why, go, report, notice, ticket, [source, *inputs], _asked)
    stop.click(stopped, ticket, notice, show_progress="hidden", queue=False)
    opened = figures.select(_open, [explore, recordings], [shown.view, tabs, notice], show_progress="hidden")
    shown.after(opened)


def _against(explore: Session, name: str | None) -> RunSet | None:
    """Returns what to compare with; raises ``InputError``."""
    return None if name in (None, NOTHING) else compare.pick(explore.history, name)


def _measure(
    kind: str,
    ticket: Ticket,
    kept: Recordings,
    explore: Session,
    paths: list[str] | None,
    against: str | None,
    request: gr.Request | None = None,
) -> tuple[Any, Any]:
    """Returns figures of the run in Explore or of trace files, and cancels a running measurement of prompts.

    Returns no change for prompts, which ``_measure_prompts`` runs, or if a newer call was made in the meantime.
    """
    number, found, bad = asked_as(request), Recordings(), ""
    if kind in RUN or not ticket.latest(number):
        return NO_ANSWER
    ticket.claim(ticket.request())  # in place of what is run
    try:
        other = _against(explore, against)
        if kind == "shown":
            drawn = calibrate.shown(found, explore.shown, other)
        else:
            drawn, bad = calibrate.files(found, paths, other)
            explore.history.keep_set(found.title, found.runs)
            give_back()
    except d2sd.InputError as error:
        return (gr.skip(), sentence(problem=f"{error}")) if ticket.latest(number) else NO_ANSWER
    if not ticket.latest(number):
        return NO_ANSWER
    kept.runs, kept.title = found.runs, found.title
    return drawn, sentence(problem=bad)


def _measure_shown(
    kind: str,
    ticket: Ticket,
    kept: Recordings,
    explore: Session,
    paths: list[str] | None,
    against: str | None,
    request: gr.Request | None = None,
) -> tuple[Any, Any]:
    if kind == "shown":
        return _measure(kind, ticket, kept, explore, paths, against, request)
    return (gr.skip(), sentence()) if ticket.latest(asked_as(request)) else NO_ANSWER


def _compare_again(
    ticket: Ticket, kept: Recordings, explore: Session, against: str | None, request: gr.Request
) -> tuple[Any, Any]:
    """Returns the measured runs compared with another choice."""
    number, runs, count = asked_as(request), kept.runs, len(kept.runs)
    if not ticket.latest(number):
        return NO_ANSWER
    try:
        drawn = calibrate.again(kept, _against(explore, against)) if runs else gr.skip()
        said = sentence(note="" if runs else "Press Measure; the measured set is then compared.")
    except d2sd.InputError as error:
        drawn, said = gr.skip(), sentence(problem=f"{error}")
    # of prompts that are run there may be more by now, and drawn
    return (drawn, said) if ticket.latest(number) and kept.runs is runs and len(runs) == count else NO_ANSWER


def _request(kind: str, ticket: Ticket, request: gr.Request) -> tuple[int, Any, Any]:
    number = asked_as(request)
    if kind not in RUN or (number is not None and number < ticket.asked):
        return NOT_ASKED, gr.skip(), gr.skip()
    return ask(ticket, request)


def _measure_prompts(
    kind: str,
    ticket: Ticket,
    number: int,
    recordings: Recordings,
    explore: Session,
    against: str | None,
    *values: Any,
) -> Iterator[tuple[Any, gr.Textbox]]:
    if kind not in RUN:
        yield gr.skip(), gr.skip()
        return

    said = Said(ticket, number)
    try:
        asked = _asked(kind, *values)
        other = _against(explore, against)
    except d2sd.InputError as error:
        yield gr.skip(), said(Update(problem=f"{error}"))
        return
    title, runs = "", list[Recording]()
    for update in TURNS.taken(ticket, calibrate.prompts(ticket, number, recordings, *asked, against=other)):
        if update.value is not None:
            title, runs = recordings.title, recordings.runs
        yield gr.skip() if update.value is None else update.value, said(update)
    if runs:
        explore.history.keep_set(title, runs)


def _asked(kind: str, *values: Any) -> tuple[calibrate.PromptSource, float | None, Chosen, str, dict[str, Any]]:
    """From the values of the controls to the arguments of ``calibrate.prompts``; raises ``InputError``."""
    (bundled, pasted, path, limit), values = values[:4], values[4:]
    source = calibrate.PromptSource.read(kind, bundled, pasted, path)
    chosen, (method, *settings) = Chosen.read(*values[:3]), values[3:]
    return source, limit, chosen, method or "", dict(zip(NAMES, settings, strict=True))


def _open(
    explore: Session, recordings: Recordings, event: gr.EventData, request: gr.Request | None = None
) -> tuple[Any, gr.Tabs, gr.Textbox]:
    """Show a measured run in Explore (the page then selects the step there)."""
    asked = told(event)
    at = asked.get("run")
    explore.latest(asked_as(request))
    if not isinstance(at, int) or not 0 <= at < len(recordings.runs):
        return gr.skip(), gr.skip(), sentence("This run is no longer there; measure again.")
    if asked.get("loaded"):
        return gr.skip(), gr.Tabs(selected="explore"), gr.skip()
    opened = recordings.runs[at]
    return explore.show(opened.run, "Calibrate", opened.label), gr.Tabs(selected="explore"), sentence()


def _prompt_set() -> tuple[list[Any], gr.Column, gr.Dropdown, gr.Column]:
    """The controls of prompts, in the order of ``_asked``'s arguments; their column, and in it those of a bundled set and
    those of prompts of one's own."""
    methods = [m for m, method in d2sd.METHODS.items() if method.first_drafter]
    with gr.Column(visible=False, elem_id="prompt-set") as group:
        with gr.Column(visible=False) as mine:
            pasted = gr.Textbox(
                label="Prompts",
                info="One prompt per line. Separate prompts of several lines by an empty line.",
                placeholder='One per line, or JSON lines: {"prompt": "…", "domain": "…"}',
                lines=4,
                max_lines=10,
                elem_id="own-prompts",
            )
            remember(pasted, MAX_CHARACTERS)
            path = gr.File(
                label="or a file (.jsonl, .txt)", file_types=[".jsonl", ".txt"], elem_id="prompt-file", height=110
            )
        with gr.Group(), gr.Row():
            source = gr.Dropdown(
                prompts.names(),
                value=presets.prompt_set(presets.first_model()),
                label="Prompts",
                elem_id="prompt-source",
                min_width=90,
            )
            limit = gr.Number(24, label="How many", elem_id="how-many", min_width=90, precision=0)
        chosen = build_models("calibrate-")
        method = PickerView(grouped(methods), "d2sd", label="Method", elem_id="calibrate-method")
        with gr.Group(elem_classes="small-numbers"):
            settings = setting_rows(NAMES, 2, "calibrate-")
        follow_model(chosen["model"], settings["chat"], settings["block_size"])
        model: Any = chosen["model"]
        model.picked(presets.prompt_set, model, source, show_progress="hidden", queue=False)
    return [source, pasted, path, limit, *chosen.values(), method, *settings.values()], group, source, mine
