"""Shows, names, removes and saves the runs of a window, and restores the window after a reload."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from app import links, models
from app.explore.controls import ExploreTab, RunToOpen, opens_run
from app.gradio_internals import event_fields
from app.guard import step_number
from app.jobs import AT_ONCE, EACH, FILES, Call, sentence
from app.links import Link
from app.models import model_set
from app.runs.share import class_page, file_name, window_file
from app.runs.view import runs_drawing
from app.session import HISTORIES, History, Session
from app.settings import remember
from d2sd import InputError
from d2sd.trace.run import Message, RecordedRun

TABS = ("explore", "race", "calibrate", "learn")
PLACE = {*links.PLACE_FIELDS, "__theme"} - {"run"}  # fields that select a place in the shown run
GONE = "This run is no longer in the list."
NOT_STORED = "The run of this link is not (or no longer) stored here."
ELSEWHERE = f"{NOT_STORED} It will be run again with the settings of the link."
NOT_KEPT = f"{NOT_STORED} The link does not contain the run's settings."
NOT_YET = "This link describes a run that has not been made yet."
STAYS = "The run below is a different one. Press Run to use the settings of the link."
PRESS_RUN = "Press Run to load the models and start the run."
# Presses the button with this id, which starts the run of a link. Waits until the page is built.
PRESS_BUTTON = """async (id) => {
  for (let tries = 0; id && tries < 100; tries += 1) {
    const button = document.getElementById(id);
    if (button) return button.click();
    await new Promise((go) => setTimeout(go, 50));
  }
}"""
# The name of the window, from this browser tab's sessionStorage.
NAME_WINDOW = """(...values) => {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  let name = Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
  try {
    name = sessionStorage.getItem("d2sd-window") || name;
    sessionStorage.setItem("d2sd-window", name);
  } catch { /* storage is disabled: the window keeps its runs until the page is reloaded */ }
  return [values[0], name];
}"""


# Fields of the list's events, in the order of the arguments of the method of ``History`` with the same name
CHANGES = {"rename": ("key", "label"), "move": ("key", "by"), "remove": ("key",)}


def wire_runs(page: gr.Blocks, shown: ExploreTab, race: Any) -> None:
    """Wire the list, the form and the load event of the page. ``race``: the Race tab."""
    session, controls, runs, view = shown.session, shown.controls, shown.runs, shown.view
    notice, told = controls.notice, controls.told
    shown.open_on(runs.show, show_run, told)
    for name in CHANGES:
        getattr(runs, name)(change(name), session, runs, **EACH)
    runs.file(file, session, [runs, told], **AT_ONCE)
    runs.together(together, session, [runs, told], **FILES)
    controls.back.click(shown.own, session, [*controls.values, controls.back], **AT_ONCE)

    window, button, own_form = (gr.Textbox(visible=False) for _ in range(3))

    def restore(current: Session, name: str, request: gr.Request) -> dict[Any, Any]:
        query = request.query_params
        current.history = HISTORIES.of(name, History())
        if len(current.shown):
            current.shown = current.history.keep(current.shown, "Recorded")
        link = current.link = links.read_link(query)
        current.fetched = link.selection if "trace" in query else None
        opened = open_link(current, link, query, controls.inputs["model"].value or "")
        current.followed = current.shown.key
        starts = "run" if opened.starts else ""
        if "methods" in query and race.begins(current.history, query):
            starts = "start-race"
        tab = tab_of(query)
        return {
            **dict(zip(controls.values, controls.restored(link), strict=True)),
            **dict(zip(race.outputs, race.restored(current.history, query), strict=True)),
            controls.back: gr.Button(visible=False),
            runs: runs_drawing(current),
            notice: opened.notice,
            view: opened.segment,
            shown.tabs: gr.Tabs(selected=tab) if tab in TABS else gr.skip(),
            button: starts,
            own_form: "yes" if opened.stored or not link.values else "",
        }

    outputs = [*controls.values, controls.back, runs, notice, view, shown.tabs, button, own_form, *race.outputs]
    restored = page.load(restore, [session, window], outputs, js=NAME_WINDOW, **AT_ONCE)
    restored.then(None, button, None, js=PRESS_BUTTON, **AT_ONCE)
    recall = remember("explore", controls.values)
    restored.then(None, own_form, controls.values, js=f"(own) => own ? ({recall})() : undefined", **AT_ONCE)


def tab_of(query: Mapping[str, str]) -> str | None:
    """Returns the tab that a link opens; None if it names none."""
    tab = query.get("tab", "race" if "methods" in query else "learn" if query.keys() & {"chapter", "stop"} else None)
    return "race" if tab == "compare" else tab  # links from before Compare became part of Race


@dataclass(frozen=True, slots=True)
class Opened:
    """What opening a link changes on the page. By default, nothing changes.

    segment: update of the view in Explore.
    notice: update of the notice box.
    stored: whether the link's run was in the list of runs. In this case, the form keeps the values that the user entered in this
        window.
    starts: whether the run that the link asks for starts immediately.
    """

    segment: Any = field(default_factory=gr.skip)
    notice: Any = field(default_factory=gr.skip)
    stored: bool = False
    starts: bool = False


def open_link(session: Session, link: Link, query: Mapping[str, str], model: str) -> Opened:
    """Show the run that a link names. If it has to be run again, clear the view.

    model: model in the form, for a link that names no model.
    """
    problem = sentence(problem=link.sentence) if link.sentence else gr.skip()
    run = query.get("run", "")
    if recording := session.history.find(run) or session.history.numbered(run):
        return Opened(session.show(recording.run, recording.source, selection=link.selection), problem, stored=True)
    fits = link.fits(session.shown.header)
    if link.selection and len(session.shown) and (fits or query.keys() <= PLACE):
        return Opened(session.shown.message(Message.select(link.selection)), problem)
    if link.sentence:  # an invalid link starts nothing, and the shown run stays
        stays = STAYS if link.values.get("prompt") else ""
        return Opened(notice=sentence(problem=f"{link.sentence} {stays}".rstrip()))
    if link.values.get("prompt") and tab_of(query) in (None, "explore") and "methods" not in query and not fits:
        session.shown = RecordedRun()  # empty, or the previous run would be taken for this one
        starts = models.loaded(model_set(link.values.get("model") or model))
        notes = [ELSEWHERE if run else NOT_YET, link.sampling_note, "" if starts else PRESS_RUN]
        return Opened(session.shown.segment(), sentence(note=" ".join(filter(None, notes))), starts=starts)
    return Opened(notice=sentence(note=NOT_KEPT) if run and not link.values else gr.skip())


@opens_run
def show_run(call: Call, session: Session) -> RunToOpen:
    session.travels = max(session.travels, step_number(call.data.get("travel")) or 0)
    recording = session.history.find(call.data.get("key"))
    if recording is None:
        raise InputError(GONE)
    return recording.run, recording.source, ""


def change(name: str) -> Callable[[Session, gr.EventData], str]:
    """Returns the answer to an event of the list, which calls the method of ``History`` with this name."""

    def changed(session: Session, data: gr.EventData) -> str:
        fields = event_fields(data)
        getattr(session.history, name)(*(fields.get(field) for field in CHANGES[name]))
        return runs_drawing(session)

    return changed


def file(session: Session, data: gr.EventData) -> tuple[Any, Any]:
    recording = session.history.find(event_fields(data).get("key"))
    if recording is None:
        return gr.skip(), sentence(problem=GONE)
    text = "".join(f"{line}\n" for line in recording.run.lines())
    made = {"name": f"{file_name(recording.header)}.jsonl", "type": "application/jsonl", "text": text}
    return runs_drawing(session, made), sentence()


def together(session: Session, data: gr.EventData) -> tuple[Any, Any]:
    """Returns runs of the list as one file: all traces, or a class page that opens at the pinned step."""
    runs, fields = session.history.runs, event_fields(data)
    try:
        if fields.get("kind") == "class":
            keys, title, step = fields.get("keys"), fields.get("title"), step_number(fields.get("step"))
            chosen, title = keys if isinstance(keys, list) else None, title if isinstance(title, str) else ""
            content = class_page(runs, session.shown.key, step, chosen, title).encode()
            made = {"name": "d2sd-class.html", "type": "text/html"}
        else:
            content, made = window_file(runs), {"name": "d2sd-runs.jsonl.gz", "type": "application/gzip"}
    except InputError as error:
        return gr.skip(), sentence(problem=f"The file was not made: {error}.")
    made["base64"] = base64.b64encode(content).decode()
    return runs_drawing(session, made), sentence()
