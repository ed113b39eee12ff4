"""The runs of this window: showing, naming, removing, saving, and restoring them after a reload."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app import links, models
from app.explore.controls import Controls, ExplorerView, sent
from app.gradio_internals import told
from app.guard import step_number
from app.jobs import AT_ONCE, Call, answer, sentence
from app.links import Link
from app.models import Chosen
from app.runs import view as runs_view
from app.runs.share import class_page, window_file
from app.runs.view import RunsView
from app.session import HISTORIES, OWN, History, Session
from d2sd import InputError
from d2sd.trace.run import RecordedRun

TABS = ("explore", "race", "compare", "calibrate", "learn")
PLACE = {"tab", "step", "node", "quiz", "draft", "beat", "embed", "__theme"}  # where to look, in whatever run is shown
RECENT = 8  # runs that the form has followed: more are not on their way to the page at once
GONE = "This run is no longer in the list."
ELSEWHERE = (
    "The run of this link is not stored here, or no longer: it is run again with the settings that are filled in."
)
NOT_KEPT = "The run of this link is not stored here, or no longer. The link does not contain its settings."
NOT_YET = "The run of this link has not been made yet."
STAYS = "The run below is a different one. Press Run to use the settings that are filled in."
PRESS = "Press Run: its models are loaded first."
# What a link runs by itself: the id of the button, which may be on a tab that is just being opened.
GO = """async (id) => {
  for (let tries = 0; id && tries < 100; tries += 1) {
    const button = document.getElementById(id);
    if (button) return button.click();
    await new Promise((go) => setTimeout(go, 50));
  }
}"""
# The name of the window and what was in its form, from the browser's storage of this tab.
RECALL = """(...given) => {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const fresh = Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
  const kept = { window: fresh, form: null };
  try {
    kept.window = sessionStorage.getItem("d2sd-window") || fresh;
    sessionStorage.setItem("d2sd-window", kept.window);
    kept.form = sessionStorage.getItem("d2sd-form");
  } catch { /* storage is switched off: this window keeps its runs until it is loaded again */ }
  return [given[0], JSON.stringify(kept)];
}"""
# To make a file may take seconds and hold hundreds of megabytes: one at a time.
FILES: dict[str, Any] = {"show_progress": "hidden", "concurrency_id": "files", "concurrency_limit": 1}


@dataclass(frozen=True, slots=True)
class Shown:
    """The parts of Explore that change when another run is shown."""

    session: gr.State
    controls: Controls
    view: ExplorerView
    runs: RunsView
    back: gr.Button

    @property
    def outputs(self) -> list[Any]:
        """The outputs of ``follow``."""
        return [*self.controls.values, self.back, self.runs, self.controls.notice]

    def after(self, event: Any) -> None:
        """Update the form and the list after an event that shows a run."""
        event.then(self.follow, [self.session, *self.controls.values], self.outputs, **AT_ONCE)

    def follow(self, session: Session, *values: Any) -> list[Any]:
        """Fill the settings of the shown run into the form, and store the user's settings."""
        listed = runs_view.drawing(session.history, session.shown.key)
        if session.followed == session.shown.key or not len(session.shown):
            return [*(gr.skip() for _ in values), gr.skip(), listed, gr.skip()]
        session.put_aside(dict(zip(self.controls.inputs, values, strict=True)))
        session.followed = session.shown.key
        link = links.read(links.fields(session.shown.header))
        session.filled = [*session.filled, sent(link)][-RECENT:]
        said = (
            f"Some settings of this run cannot be filled in, so yours stay: {'; '.join(link.ignored)}."
            if link.ignored
            else ""
        )
        return [
            *self.controls.restored(link),
            gr.Button(visible=True),
            listed,
            sentence(note=said) if said else gr.skip(),
        ]

    def own(self, session: Session) -> list[Any]:
        """Restore the user's settings."""
        values, session.own = session.own or {}, None
        return [*self.controls.restored(Link(values)), gr.Button(visible=False)]

    def started(self, session: Session) -> tuple[Any, str]:
        """Handle the start of a run: its settings count as the user's. Hides the button and updates the list."""
        session.own, session.followed = None, session.shown.key
        return gr.Button(visible=False), runs_view.drawing(session.history, session.shown.key)


def wire_runs(page: gr.Blocks, tabs: gr.Tabs, shown: Shown, race: Any) -> None:
    """Wire the list, the form and the load event of the page. ``race``: the view that draws a stored race."""
    session, runs, view, notice = shown.session, shown.runs, shown.view, shown.controls.notice
    shown.after(answer(runs.show, show, session, [session], [view], notice, **AT_ONCE))
    runs.rename(rename, session, runs, **AT_ONCE)
    runs.move(move, session, runs, **AT_ONCE)
    runs.remove(remove, session, runs, **AT_ONCE)
    runs.file(file, session, [runs, notice], **AT_ONCE)
    runs.together(together, session, [runs, notice], **FILES)
    shown.back.click(shown.own, session, [*shown.controls.values, shown.back], **AT_ONCE)

    recalled, begin = gr.Textbox(visible=False), gr.Textbox(visible=False)
    outputs = [*shown.controls.values, shown.back, runs, notice, view, tabs, begin, *race.outputs]

    def restore(current: Session, kept: str, request: gr.Request) -> list[Any]:
        name, form = _kept(kept)
        current.history = HISTORIES.of(name, History())
        if len(current.shown):
            current.shown = current.history.keep(current.shown, "Recorded")
        query = request.query_params
        link = current.link = links.read(query)
        current.fetched = link.wanted if "trace" in query else None
        found = current.history.find(query.get("run")) or current.history.numbered(query.get("run", ""))
        segment, said = gr.skip(), sentence(problem=link.sentence) if link.sentence else gr.skip()
        races = "methods" in query
        tab, at_once = query.get("tab", "race" if races else "learn" if "stop" in query else None), ""
        if found:
            current.shown = found.run
            segment = found.run.segment(recorded=not found.run.live, own=found.source in OWN, wanted=link.wanted)
            link = form or link
        elif link.wanted and len(current.shown) and (link.fits(current.shown.header) or query.keys() <= PLACE):
            segment = current.shown.note(wanted=link.wanted)
            said = sentence(note=other) if (other := link.other_text(current.shown)) else said
            link = link if link.values else form or link
        elif link.sentence:
            # nothing is run from a link that is not understood: the run that was there stays
            said = sentence(problem=f"{link.sentence} {STAYS if link.values.get('prompt') else ''}".rstrip())
            link = link if link.values else form or link
        elif (
            link.values.get("prompt") and tab in (None, "explore") and not races and not link.fits(current.shown.header)
        ):
            # another run in its place would pass for this one
            current.shown = RecordedRun()
            segment = current.shown.segment()
            model = link.values.get("model") or shown.controls.inputs["model"].value or ""
            at_once = "run" if models.loaded(Chosen(model)) else ""
            note = f"{ELSEWHERE if 'run' in query else NOT_YET} {link.drawn}".rstrip()
            said = sentence(note=note if at_once else f"{note} {PRESS}")
        elif not link.values:
            said = sentence(note=NOT_KEPT) if "run" in query else said
            link = form or link
        current.followed = current.shown.key
        return [
            *shown.controls.restored(link),
            gr.Button(visible=False),
            runs_view.drawing(current.history, current.shown.key),
            said,
            segment,
            gr.Tabs(selected=tab) if tab in TABS else gr.skip(),
            "start-race" if races and race.begins(current.history, query) else at_once,
            *race.restored(current.history, query),
        ]

    restored = page.load(restore, [session, recalled], outputs, js=RECALL, **AT_ONCE)
    restored.then(None, begin, None, js=GO, **AT_ONCE)


def _kept(text: str) -> tuple[Any, Link | None]:
    """Returns the window's name and its form, as stored by the browser."""
    try:
        kept = json.loads(text)
        form = json.loads(kept["form"] or "null")
    except (TypeError, ValueError, KeyError):
        return None, None
    fields = {str(k): v for k, v in form.items() if isinstance(v, str)} if isinstance(form, dict) else {}
    return kept.get("window"), links.remembered(fields) if fields else None


def show(call: Call, session: Session) -> tuple[Any, Any]:
    """Show a run of the list, with a step and node if given, unless another run was requested in the meantime."""
    found = session.history.find(call.data.get("key"))
    if found is None:
        raise InputError(GONE)
    step = step_number(call.data.get("step"))
    wanted = None if step is None else {"step": step, "node": call.data.get("node")}
    call.check()
    return session.show(found.run, found.source, wanted=wanted), sentence()


def rename(session: Session, data: gr.EventData) -> str:
    """Rename a run."""
    session.history.rename(told(data).get("key"), told(data).get("label"))
    return runs_view.drawing(session.history, session.shown.key)


def move(session: Session, data: gr.EventData) -> str:
    """Move a run to another place of the list."""
    session.history.move(told(data).get("key"), told(data).get("by"))
    return runs_view.drawing(session.history, session.shown.key)


def remove(session: Session, data: gr.EventData) -> str:
    """Remove a run from the list. If it is the shown one, it remains visible until another one is shown."""
    session.history.remove(told(data).get("key"))
    return runs_view.drawing(session.history, session.shown.key)


def file(session: Session, data: gr.EventData) -> tuple[Any, Any]:
    """Returns a run as a trace file."""
    found = session.history.find(told(data).get("key"))
    if found is None:
        return gr.skip(), sentence(problem=GONE)
    text = "".join(f"{line}\n" for line in found.run.lines())
    made = {"name": "d2sd-run.jsonl", "type": "application/jsonl", "text": text}
    return runs_view.drawing(session.history, session.shown.key, made), sentence()


def together(session: Session, data: gr.EventData) -> tuple[Any, Any]:
    """Returns runs of the list as one file: the traces of all, or a page to teach with that opens with the step that is looked at."""
    kept, asked = session.history.runs, told(data)
    try:
        if asked.get("kind") == "class":
            keys = asked.get("keys")
            chosen = {key for key in keys if isinstance(key, str)} if isinstance(keys, list) else None
            step, title = step_number(asked.get("step")), asked.get("title")
            content = class_page(
                kept, session.shown.key, step, chosen, title if isinstance(title, str) else ""
            ).encode()
            made = {"name": "d2sd-class.html", "type": "text/html"}
        else:
            content, made = window_file(kept), {"name": "d2sd-runs.jsonl.gz", "type": "application/gzip"}
    except InputError as error:
        return gr.skip(), sentence(problem=f"The file was not made: {error}.")
    made["base64"] = base64.b64encode(content).decode()
    return runs_view.drawing(session.history, session.shown.key, made), sentence()
