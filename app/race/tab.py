"""Race: methods against each other on one prompt, and below it what other settings would have done."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr

from app import links, models, presets
from app.jobs import AT_ONCE, Call, Job, Ticket, Update, answer, forgive, notice_box, sentence, wire
from app.model_choice import build_models, follow_model
from app.models import Chosen, grouped
from app.race import run as race
from app.race.lanes import DEFAULT, LANES, Race, recorded_race
from app.race.view import RaceView, drawing
from app.race.view import query as race_query
from app.race.view import sentence as lane_sentence
from app.race.whatif_tab import WhatIf, build_whatif
from app.runs import view as runs_view
from app.runs.tab import Shown
from app.session import History, Session
from app.settings import remember, setting_rows
from d2sd import InputError
from d2sd.trace.run import RecordedRun

CHOSEN = ("model", "folder", "vp")
# Prompt and models come along from Explore, except those that were changed here since they last did.
BROUGHT = ("prompt", *CHOSEN, "chat")
BRING = """(last, ...values) => {
  const explored = values.slice(0, values.length / 2), own = values.slice(values.length / 2), brought = JSON.parse(last);
  const taken = own.map((value, n) => value === brought[n] && explored[n] !== null && explored[n] !== "" ? explored[n] : value);
  return [JSON.stringify(taken.map((value, n) => own[n] === brought[n] ? value : brought[n])), ...taken];
}"""
METHODS = grouped(LANES)
NAMES = ("block_size", "num_branches", "node_budget", "temperature", "seed", "max_new_tokens", "chat")


@dataclass(frozen=True, slots=True)
class RaceTab:
    """The components that are restored when the page is loaded."""

    inputs: dict[str, Any]
    lanes: RaceView
    whatif: WhatIf

    @property
    def outputs(self) -> list[Any]:
        """What ``restored`` changes."""
        return [*self.inputs.values(), self.lanes, *self.whatif.outputs]

    def restored(self, history: History, query: Mapping[str, str]) -> list[Any]:
        """Returns the controls as set by a link to a race, and the window's race if it has one."""
        values = dict(links.read(query).values) if "methods" in query else {}
        methods = _linked(query)
        if methods:
            values |= {title: [m for m in group if m in methods] for title, group in METHODS.items()}
        controls = [values.get(name, gr.skip()) for name in self.inputs]
        return [*controls, drawing(history.race) if history.race else gr.skip(), *self.whatif.about(history.race)]

    def begins(self, history: History, query: Mapping[str, str]) -> bool:
        """Returns whether a link requests a race that can start immediately.

        This needs a completely valid link whose models are loaded, and a race that the window does not have yet.
        """
        link, methods = links.read(query), _linked(query)
        asked = {name: self.inputs[name].value for name in ("model", *NAMES)} | link.values
        if link.ignored or not methods or not asked.get("prompt"):
            return False
        return not _ran(history.race, asked, methods) and models.loaded(Chosen(asked["model"] or ""))


def build_race(tab: gr.Tab, tabs: gr.Tabs, shown: Shown) -> RaceTab:
    """Lay out the tab and wire it. ``shown``: Explore, where lanes are opened, and whose window keeps the race."""
    explore, opening = shown.session, recorded_race()
    with gr.Row(elem_classes="beside"):
        with gr.Column(scale=0, min_width=290, elem_classes="settings", elem_id="race-settings"):
            inputs, start, stop, notice = _settings()
        with gr.Column(scale=1, min_width=320):
            lanes = RaceView(drawing(opening) if opening.lanes else None)
            asked = build_whatif(explore, [inputs[name] for name in CHOSEN])

    def run(job: Job, explored: Session, *values: Any) -> Iterator[Update[list[Any]]]:
        def draw(raced: Race) -> list[Any]:
            done = raced if not raced.status and raced.lanes else None
            if done:
                keep(explored.history, done)
            listed = runs_view.drawing(explored.history, explored.shown.key) if done else gr.skip()
            return [drawing(raced), *asked.about(done), listed]

        for update in race.run(job, *_asked(*values)):
            yield update.map(draw)

    forgive(notice, [box.change for box in inputs.values()])
    # Its own ticket: a run in Explore and a race wait for each other, but do not stop each other.
    ticket, outputs = gr.State(Ticket()), [lanes, *asked.outputs, shown.runs]
    wire(start.click, run, ticket, [explore, *inputs.values()], outputs, notice, stop=stop)
    mine = [inputs[name] for name in BROUGHT]
    brought = gr.Textbox(
        json.dumps([box.value for box in mine]), visible=False
    )  # not a State: this stays in the browser
    explored = [shown.controls.inputs[name] for name in BROUGHT]
    tab.select(None, [brought, *explored, *mine], [brought, *mine], js=BRING, **AT_ONCE)
    shown.after(answer(lanes.select, open_lane, explore, [explore], [shown.view, tabs], notice, **AT_ONCE))
    return RaceTab(inputs, lanes, asked)


def _linked(query: Mapping[str, str]) -> list[str]:
    """Returns the lanes named in a link."""
    asked = query.get("methods", "").split(",")
    return [lane for lane in LANES if lane in asked]


def _ran(race: Race | None, asked: Mapping[str, Any], methods: list[str]) -> bool:
    """Returns whether a race is the requested one, not counting requested methods that it had no drafter for."""
    if race is None or not set(race.methods) <= set(methods):
        return False
    own = links.read(dict(parse_qsl(race_query(race)))).values
    return all(own.get(name) == asked[name] for name in ("prompt", "model", *NAMES))


def keep(history: History, raced: Race) -> None:
    """Store a race and add its lanes to the list of runs."""
    history.race = raced
    for lane in reversed(raced.lanes):
        if lane.trace.steps:
            history.keep(RecordedRun.of(lane.trace.records()), "Race")


def open_lane(call: Call, session: Session) -> tuple[Any, Any, Any]:
    """Show a lane of the race in Explore, unless another run was requested in the meantime."""
    lanes = (session.history.race or recorded_race()).lanes
    at = call.data.get("lane")
    if not isinstance(at, int) or not 0 <= at < len(lanes) or not lanes[at].trace.steps:
        raise InputError("This lane no longer exists; race again.")
    run = RecordedRun.of(lanes[at].trace.records())
    call.check()
    return session.show(run, "Race"), gr.Tabs(selected="explore"), sentence()


def _asked(
    prompt: str, model: str, folder: str, vp: str, *values: Any
) -> tuple[str, Chosen, list[str], dict[str, Any]]:
    ticked, settings = values[: len(METHODS)], values[len(METHODS) :]
    methods = [lane for group in ticked for lane in group or []]
    return prompt or "", Chosen.read(model, folder, vp), methods, dict(zip(NAMES, settings, strict=True))


def _settings() -> tuple[dict[str, Any], gr.Button, gr.Button, gr.Textbox]:
    """The column of controls; ``inputs`` is in the order of ``_asked``'s arguments."""
    inputs = dict[str, Any]()
    inputs["prompt"] = gr.Textbox(
        next(iter(presets.examples(presets.first_model()).values())),
        label="Prompt",
        lines=3,
        max_lines=8,
        elem_id="race-prompt",
    )
    remember(inputs["prompt"], links.MAX_PROMPT)
    with gr.Row(elem_classes="buttons"):
        start = gr.Button("Race", variant="primary", elem_id="start-race", min_width=80)
        stop = gr.Button("Stop", elem_id="stop-race", min_width=80)
    notice = notice_box("race-notice")
    inputs |= build_models("race-")
    with gr.Column(elem_id="race-methods"):
        gr.Markdown("Methods, run one after the other", elem_id="race-methods-title")
        for title, group in METHODS.items():
            inputs[title] = gr.CheckboxGroup(
                [(f"{name}: {lane_sentence(lane)}", lane) for lane, name in group.items()],
                value=[lane for lane in group if lane in DEFAULT],
                label=title,
                elem_id=f"race-{title.lower().replace('²', '2')}",
                elem_classes="race-methods",
            )
    with gr.Group(elem_id="race-numbers", elem_classes="small-numbers"):
        inputs |= setting_rows(NAMES, 3, "race-")
    follow_model(inputs["model"], inputs["chat"], inputs["block_size"])
    return inputs, start, stop, notice
