"""The Race tab: methods against each other on one prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

import gradio as gr
import orjson

from app import links, models, presets
from app.explore.controls import ExploreTab
from app.gradio_internals import View
from app.jobs import AT_ONCE, Call, Job, Ticket, Update, answer, forgive, notice_box, sentence, wire
from app.methods import DEFAULT_LANES, LANES, PLAIN, grouped, method_of, trace_lane
from app.model_choice import build_models, follow_block, follow_model
from app.models import Chosen
from app.race import run as race
from app.race.run import Lane, Race, lane_figures, recorded_race, reference
from app.runs import view as runs_view
from app.runs.view import MAX_LINK
from app.session import History, Session
from app.settings import remember, setting_rows
from app.view import drawn_view, fold_view
from d2sd import METHODS, InputError
from d2sd.trace.text import encodable

CHOSEN = ("model", "folder", "vp")
# Values copied from Explore when this tab is selected, except those that were changed in this tab since the last copy.
BROUGHT = ("prompt", *CHOSEN, "chat")
BRING = """(last, ...values) => {
  const explored = values.slice(0, values.length / 2), own = values.slice(values.length / 2), brought = JSON.parse(last);
  const taken = own.map((value, n) => value === brought[n] && explored[n] !== null && explored[n] !== "" ? explored[n] : value);
  return [JSON.stringify(taken.map((value, n) => own[n] === brought[n] ? value : brought[n])), ...taken];
}"""
GROUPS = grouped(LANES)  # the checkbox groups of methods
NAMES = ("block_size", "num_branches", "node_budget", "temperature", "seed", "max_new_tokens", "chat")
FILLED_IN = ("block_size", "second_block_size", "node_budget")  # the engine fills these in for each method
NO_LIMIT: dict[str, Any] = {"node_budget": None}  # a link of a race has no B if its lanes had none


def race_drawing(race: Race) -> str:
    """Returns the view's value: every planned lane with its state. Lanes that have run also have steps and figures."""
    base = reference(race)
    lanes = [_lane(lane) for lane in race.lanes]
    for lane, figures in zip(lanes, lane_figures(race), strict=True):
        row = asdict(figures)
        totals = row.pop("totals")
        lane["row"] = {**totals, **row}
    running = bool(race.status)
    for number, method in enumerate(race.methods[len(lanes) :]):
        state = "running" if running and number == 0 else "waiting" if running else "not run"
        lanes.append({"method": method, "sentence": lane_sentence(method), "state": state})
    first = race.lanes[0].trace if race.lanes else None
    data = {
        "status": race.status,
        "prompt": first.prompt if first else "",
        "model": str(first.header["models"].get("preset") or "") if first else "",
        "recorded": race.recorded,
        "machine": machine(first.header) if first else "",
        "reference": base.trace.header["method"] if base else "",
        "plain": bool(base and base.trace.header["method"] == PLAIN),
        "lanes": lanes,
        "query": race_query(race),
    }
    return orjson.dumps(data).decode()


def race_query(race: Race) -> str:
    """Returns the query of a link that fills in prompt, models, settings and methods of a race; empty if it is too long."""
    if not race.lanes:
        return ""
    header = race.lanes[0].trace.header
    requested = {name: getattr(race.config, name) for name in FILLED_IN}
    fields = links.query_fields(
        {**header, "method": None, "config": {**header["config"], **requested, "cost_aware": None}}
    )
    text = urlencode({**fields, "tab": "race", "methods": ",".join(race.methods)})
    return text if len(text) <= MAX_LINK else ""


def lane_sentence(lane: str) -> str:
    method = method_of(lane)
    words = METHODS[method].sentence
    return words if lane == method else f"{words[:-1]}, drafting and verifying only what is expected to save time."


def machine(header: dict[str, Any]) -> str:
    known = header["hardware"]
    threads = known.get("threads")
    counted = None if threads is None else f"{threads} thread{'' if threads == 1 else 's'}"
    inner = [known.get("machine"), counted, known.get("dtype")]
    words = ", ".join(str(w) for w in inner if w)
    return f"{known.get('device', 'unknown machine')}{f' ({words})' if words else ''}"


def _lane(lane: Lane) -> dict[str, Any]:
    """Returns a lane for the view. ``steps``: [seconds since the prompt was read, [[text, proposer], …]], prefill first."""
    method, prefill = trace_lane(lane.trace), lane.trace.prefill
    opening = prefill.committed if prefill else ()
    commits = [(0.0, opening)] if opening else []
    commits += [(s.elapsed, s.committed) for s in lane.trace.steps]
    return {
        "method": method,
        "sentence": lane_sentence(method),
        "state": "broke off" if lane.problem else "done" if lane.complete else "stopped",
        "problem": lane.problem,
        "opening": len(opening),
        "steps": [
            [
                round(elapsed, 6),
                [[encodable(c.text), c.proposer] for c in committed],
            ]
            for elapsed, committed in commits
        ],
    }


@dataclass(frozen=True, slots=True)
class RaceTab:
    """The components that are restored when the page is loaded."""

    inputs: dict[str, Any]
    lanes: View

    @property
    def outputs(self) -> list[Any]:
        return [*self.inputs.values(), self.lanes]

    def restored(self, history: History, query: Mapping[str, str]) -> list[Any]:
        """Returns updates: values of the controls if the query is a link to a race, and the window's race if there is one."""
        values = NO_LIMIT | links.read_link(query).values if "methods" in query else {}
        methods = _linked(query)
        if methods:
            values |= {title: [m for m in group if m in methods] for title, group in GROUPS.items()}
        controls = [values.get(name, gr.skip()) for name in self.inputs]
        return [*controls, race_drawing(history.race) if history.race else gr.skip()]

    def begins(self, history: History, query: Mapping[str, str]) -> bool:
        """Returns whether a link requests a race that can start immediately.

        The link must be completely valid, its models must be loaded, and its race must not be the window's race already.
        """
        link, methods = links.read_link(query), _linked(query)
        values = {name: self.inputs[name].value for name in ("model", *NAMES)} | NO_LIMIT | link.values
        if link.ignored or not methods or not values.get("prompt"):
            return False
        return not _ran(history.race, values, methods) and models.loaded(Chosen(values["model"] or ""))


def build_race(tab: gr.Tab, tabs: gr.Tabs, shown: ExploreTab) -> RaceTab:
    """Lay out the tab and wire it. ``shown``: the Explore tab, which opens lanes and whose session stores the race."""
    session, opening = shown.session, recorded_race()
    with gr.Row(elem_classes="beside"):
        with gr.Column(scale=0, min_width=290, elem_classes="settings", elem_id="race-settings"):
            inputs, start, stop, notice = _settings()
        with gr.Column(scale=1, min_width=320):
            # event ``select``: opens the run of a ``lane`` (its number) in Explore
            drawn = race_drawing(opening) if opening.lanes else None
            lanes = drawn_view(drawn, "race/main.js", sheets=("race/race.css",), elem_id="race")

    def run(job: Job, explored: Session, *values: Any) -> Iterator[Update[list[Any]]]:
        def draw(raced: Race) -> list[Any]:
            done = raced if not raced.status and raced.lanes else None
            if done:
                keep_race(explored.history, done)
            listed = runs_view.runs_drawing(explored.history, explored.shown.key) if done else gr.skip()
            return [race_drawing(raced), listed]

        for update in race.run_race(job, *_arguments(*values)):
            yield update.map(draw)

    forgive(notice, [box.change for box in inputs.values()])
    # A separate ticket: a run in Explore and a race wait for each other, but do not stop each other.
    ticket, outputs = gr.State(Ticket()), [lanes, shown.runs]
    wire(start.click, run, ticket, [session, *inputs.values()], outputs, notice, stop=stop)
    mine = [inputs[name] for name in BROUGHT]
    brought = gr.Textbox(
        json.dumps([box.value for box in mine]), visible=False
    )  # unlike a State, a hidden field stays in the browser
    explored = [shown.controls.inputs[name] for name in BROUGHT]
    tab.select(None, [brought, *explored, *mine], [brought, *mine], js=BRING, **AT_ONCE)
    shown.after(answer(lanes.select, open_lane, session, [session], [shown.view, tabs], notice, **AT_ONCE))
    return RaceTab(inputs, lanes)


def _linked(query: Mapping[str, str]) -> list[str]:
    named = query.get("methods", "").split(",")
    return [lane for lane in LANES if lane in named]


def _ran(race: Race | None, values: Mapping[str, Any], methods: list[str]) -> bool:
    """Returns whether a race has these values and methods. It may lack methods that have no drafter in its models."""
    if race is None or not set(race.methods) <= set(methods):
        return False
    own = links.read_link(dict(parse_qsl(race_query(race)))).values
    return all(own.get(name) == values[name] for name in ("prompt", "model", *NAMES))


def keep_race(history: History, raced: Race) -> None:
    history.race = raced
    for lane, figures in reversed([*zip(raced.lanes, lane_figures(raced), strict=True)]):
        if lane.trace.steps:
            history.keep(race.recorded(lane, figures), "Race")


def open_lane(call: Call, session: Session) -> tuple[Any, Any, Any]:
    """Show a lane of the race in Explore, unless another run was requested in the meantime."""
    raced = session.history.race or recorded_race()
    lanes = raced.lanes
    at = call.data.get("lane")
    if not isinstance(at, int) or not 0 <= at < len(lanes) or not lanes[at].trace.steps:
        raise InputError("This lane no longer exists; press Race again.")
    run = race.recorded(lanes[at], lane_figures(raced)[at])
    call.check()
    return session.show(run, "Recorded" if raced.recorded else "Race"), gr.Tabs(selected="explore"), sentence()


def _arguments(
    prompt: str, model: str, folder: str, vp: str, *values: Any
) -> tuple[str, Chosen, list[str], dict[str, Any]]:
    ticked, settings = values[: len(GROUPS)], values[len(GROUPS) :]
    methods = [lane for group in ticked for lane in group or []]
    return prompt or "", Chosen.read(model, folder, vp), methods, dict(zip(NAMES, settings, strict=True))


def _settings() -> tuple[dict[str, Any], gr.Button, gr.Button, gr.Textbox]:
    """Build the column of controls; the inputs are in the order of ``_arguments``'s parameters."""
    inputs = dict[str, Any]()
    inputs["prompt"] = gr.Textbox(
        next(iter(presets.examples(presets.first_model()).values())),
        label="Prompt",
        lines=3,
        max_lines=8,
        elem_id="race-prompt",
    )
    recall = remember("race-prompt", [inputs["prompt"]])
    gr.on(None, None, None, inputs["prompt"], js=recall, **AT_ONCE)
    with gr.Row(elem_classes="buttons"):
        start = gr.Button("Race", variant="primary", elem_id="start-race", min_width=80)
        stop = gr.Button("Stop", elem_id="stop-race", min_width=80, visible=False)
    notice = notice_box("race-notice")
    fold_view("Models, methods, settings", "race-fields", elem_id="race-fold")
    with gr.Column(elem_id="race-fields", elem_classes="folded"):
        inputs |= build_models("race-")
        (first, _), (more, _) = GROUPS.items()
        inputs[first] = _ticks(first)
        with gr.Accordion("More methods, and what each does", open=False, elem_id="race-more"):
            inputs[more] = _ticks(more)
            gr.Markdown(
                "\n\n".join(
                    f"**{name}**: {lane_sentence(lane)}" for group in GROUPS.values() for lane, name in group.items()
                )
            )
        with gr.Group(elem_id="race-numbers", elem_classes="small-numbers"):
            inputs |= setting_rows(NAMES, 3, "race-")
    follow_model(inputs["model"], inputs["chat"], inputs["block_size"])
    follow_block(inputs)
    return inputs, start, stop, notice


def _ticks(title: str) -> gr.CheckboxGroup:
    group = GROUPS[title]
    return gr.CheckboxGroup(
        [(name, lane) for lane, name in group.items()],
        value=[lane for lane in group if lane in DEFAULT_LANES],
        label=title,
        elem_id=f"race-{title.lower().replace(' ', '-')}",
        elem_classes="race-methods",
    )
