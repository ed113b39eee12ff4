"""The Race tab: methods on one prompt, or runs of the list, against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import gradio as gr
import orjson

from app import links, models
from app.explore.controls import ExploreTab, RunToOpen, filled_in, opens_run, run_buttons
from app.gradio_internals import View, inside
from app.jobs import AT_ONCE, Call, Job, ModelJobs, Ticket, Update, answer, hide_problem_on, notice_box, sentence
from app.methods import DEFAULT_LANES, LANES, lane_title, method_of, ordered, run_lane
from app.models import model_set
from app.race import run as race
from app.race.pair import DISTURBED, OTHER_MACHINE, pair_drawing, side_names, side_of
from app.race.run import (
    Lane,
    LaneFigures,
    Race,
    default_pair,
    lane_figures,
    one_machine,
    plain_lane,
    recorded_race,
    reference,
)
from app.runs.view import runs_drawing
from app.session import History, Session
from app.settings import RACED
from app.streaming import RunRequest
from app.view import drawn_view
from d2sd import METHODS
from d2sd.calibration import RunStatistics
from d2sd.errors import require

FILLED_IN = ("block_size", "second_block_size", "node_budget")  # the engine fills these in for each method
MAX_LANES = 8  # of runs of the list
GONE = "This lane is no longer shown here."


def race_drawing(race: Race, pair: tuple[int, int] | None = None) -> str:
    """Returns the view's value: every planned lane with its state, and the comparison of two lanes. Lanes that have run also have
    steps and figures.

    pair: indices of the two lanes; None: ``default_pair``.
    """
    base = reference(race)
    names = race.names or tuple(map(lane_title, race.methods))
    figures_of = lane_figures(race)
    done = zip(names, race.lanes, figures_of, strict=False)
    lanes = [{"name": name} | _lane(lane, figures) for name, lane, figures in done]
    running = bool(race.status)
    for number, method in enumerate(race.methods[len(lanes) :]):
        state = "running" if running and number == 0 else "waiting" if running else "not run"
        name = lane_title(method)
        lanes.append({"method": method, "name": name, "sentence": lane_sentence(method), "state": state})
    data: dict[str, Any] = {
        "status": race.status,
        "kind": "runs" if race.names else "recorded" if race.recorded else "own",
        "reference": names[race.lanes.index(base)] if base else "",
        "plain": plain_lane(race) is not None,
        "lanes": lanes,
        "query": "" if race.names else race_query(race),
    }
    if race.lanes:
        trace = race.lanes[0].trace
        data |= {
            "prompt": trace.prompt,
            "chat": bool(trace.header["config"].get("chat")),
            "model": str(trace.header["models"].get("preset") or ""),
            "machine": machine(trace.header),
        }
    compared = None if running else pair or default_pair(race)
    if compared:
        disturbed = any(figures_of[n].disturbed for n in compared)
        doubt = DISTURBED if disturbed else "" if one_machine(race) else OTHER_MACHINE
        a, b = (RunStatistics([race.lanes[n].trace]) for n in compared)
        data["pair"] = {"at": compared, **pair_drawing([names[n] for n in compared], a, b, doubt)}
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
    return links.query({**fields, "tab": "race", "methods": ",".join(race.methods)})


def lane_sentence(lane: str) -> str:
    """Returns what a method does; empty for an unknown one."""
    method = method_of(lane)
    words = METHODS[method].sentence if method in METHODS else ""
    return words if lane == method else f"{words[:-1]}, drafting and verifying only what is expected to save time."


def machine(header: dict[str, Any]) -> str:
    hardware = header["hardware"]
    threads = hardware.get("threads")
    counted = None if threads is None else f"{threads} thread{'' if threads == 1 else 's'}"
    inner = [hardware.get("machine"), counted, hardware.get("dtype")]
    words = ", ".join(str(w) for w in inner if w)
    return f"{hardware.get('device', 'unknown machine')}{f' ({words})' if words else ''}"


def _lane(lane: Lane, figures: LaneFigures) -> dict[str, Any]:
    row = asdict(figures)
    return {
        "method": figures.method,
        "sentence": lane_sentence(figures.method),
        "state": "broke off" if lane.problem else "done" if lane.complete else "stopped",
        "problem": lane.problem,
        "row": row.pop("totals") | row,
        **side_of(lane.trace),
    }


class RaceTab(NamedTuple):
    """The components of the tab that are restored when the page is loaded.

    form: the fields of the form, by name.
    methods: the ticked lanes.
    """

    form: dict[str, Any]
    methods: gr.CheckboxGroup
    lanes: View

    @property
    def outputs(self) -> list[Any]:
        return [self.methods, self.lanes]

    def restored(self, history: History, query: Mapping[str, str]) -> list[Any]:
        """Returns updates: the methods if the query is a link to a race, and the window's race if there is one."""
        return [_linked(query) or gr.skip(), race_drawing(history.race) if history.race else gr.skip()]

    def begins(self, history: History, query: Mapping[str, str]) -> bool:
        """Returns whether a link requests a race that can start immediately.

        The link must be completely valid, its models must be loaded, and its race must not be the window's race already.
        """
        link, methods = links.read_link(query), _linked(query)
        values = {name: self.form[name].value for name in ("model", *RACED)} | filled_in(link)
        if link.ignored or not methods or not values.get("prompt"):
            return False
        return not _ran(history.race, values, methods) and models.loaded(model_set(values["model"] or ""))


def build_race(shown: ExploreTab) -> RaceTab:
    """Lay out the tab and wire it. ``shown``: the Explore tab, which opens lanes and whose session stores the race."""
    session, opening, controls = shown.session, recorded_race(), shown.controls
    with inside(controls.bar):
        notice = notice_box("race-notice")
    with inside(controls.buttons):
        start, stop = run_buttons("Race", "start-race", "stop-race", "race")
    with inside(controls.race):
        choices = ordered(LANES)
        ticked = gr.CheckboxGroup(choices, value=list(DEFAULT_LANES), label="Methods", elem_id="race-methods")
        with gr.Accordion("What each method does", open=False, elem_id="race-more"):
            gr.Markdown("\n\n".join(f"**{name}**: {lane_sentence(lane)}" for name, lane in choices))
    # events: ``choose`` compares two lanes, ``at`` (null: shows the race again); ``select`` opens the run of a ``lane`` (its number) in
    # Explore, at ``step`` if given
    drawn = race_drawing(opening) if opening.lanes else None
    lanes = drawn_view(drawn, "race/main.js", sheets=("race/race.css",), elem_id="race")
    form = controls.inputs
    fields = ("prompt", "model", "folder", "vp", *RACED)

    def run(job: Job, explored: Session, methods: list[str] | None, *values: Any) -> Iterator[Update[list[Any]]]:
        request = RunRequest.read(dict(zip(fields, values, strict=True)))

        def draw(raced: Race) -> list[Any]:
            if raced.status or not raced.lanes:
                return [race_drawing(raced), gr.skip()]
            keep_race(explored.history, raced)
            explored.beside = None
            return [race_drawing(raced), runs_drawing(explored)]

        for update in race.run_race(job, request, methods or []):
            yield update.map(draw)

    asked = [ticked, *(form[name] for name in fields)]
    hide_problem_on(notice, [box.change for box in asked])
    # A separate ticket: a run in Explore and a race wait for each other, but do not stop each other.
    ticket, outputs = gr.State(Ticket()), [lanes, shown.runs]
    ModelJobs(ticket, notice, stop).on(start.click, run, [session, *asked], outputs)
    answer(lanes.choose, choose_lanes, ticket, [session], [lanes], notice, **AT_ONCE)
    answer(shown.runs.race, show_runs, ticket, [session], [lanes, shown.tabs], notice, **AT_ONCE)
    shown.open_on(lanes.select, open_lane, notice)
    return RaceTab(form, ticked, lanes)


def _linked(query: Mapping[str, str]) -> list[str]:
    named = query.get("methods", "").split(",")
    return [lane for lane in LANES if lane in named]


def _ran(race: Race | None, values: Mapping[str, Any], methods: list[str]) -> bool:
    """Returns whether a race had these values and methods. Methods without a drafter in its models may be missing from the race."""
    if race is None or not set(race.methods) <= set(methods):
        return False
    of_race = links.read_link(dict(parse_qsl(race_query(race)))).values
    return all(of_race.get(name) == values[name] for name in ("prompt", "model", *RACED))


def keep_race(history: History, raced: Race) -> None:
    history.race = raced
    for lane, figures in reversed([*zip(raced.lanes, lane_figures(raced), strict=True)]):
        if lane.trace.steps:
            history.keep(race.recorded(lane, figures), "Race")


def shown_race(session: Session) -> Race:
    return session.beside or session.history.race or recorded_race()


@opens_run
def open_lane(call: Call, session: Session) -> RunToOpen:
    raced, number = shown_race(session), call.data.get("lane", -1)
    lanes = raced.lanes
    require(isinstance(number, int) and 0 <= number < len(lanes) and lanes[number].trace.steps, GONE)
    if kept := lanes[number].kept:
        return kept.run, kept.source, kept.label
    run = race.recorded(lanes[number], lane_figures(raced)[number])
    return run, "Recorded" if raced.recorded else "Race", ""


def choose_lanes(call: Call, session: Session) -> tuple[str, Any]:
    """Compare the two lanes ``at`` of what is shown, or show the race again if there are none."""
    chosen = call.data.get("at")
    if chosen is None:
        session.beside = None
        return race_drawing(shown_race(session)), gr.skip()
    raced = shown_race(session)
    steps = [n for n, lane in enumerate(raced.lanes) if lane.trace.steps]
    require(isinstance(chosen, list) and len(chosen) == 2 and all(n in steps for n in chosen), GONE)
    return race_drawing(raced, (chosen[0], chosen[1])), gr.skip()


def show_runs(call: Call, session: Session) -> tuple[Any, Any, Any]:
    """Show the chosen runs (``keys``) of one prompt as lanes, the oldest first."""
    keys = call.data.get("keys")
    ticked = [kept for kept in session.history.runs if isinstance(keys, list) and kept.run.key in keys][::-1]
    lanes = [lane for lane in (Lane(kept.run.trace(), kept=kept) for kept in ticked) if lane.trace.steps]
    prompts = Counter(lane.trace.prompt for lane in lanes)
    prompt, times = max(prompts.items(), key=lambda item: item[1], default=("", 0))
    if times < 2:  # the tab is selected all the same, since it shows the notice
        return gr.skip(), gr.Tabs(selected="race"), sentence(problem="Tick at least two runs of the same prompt.")
    shown = [lane for lane in lanes if lane.trace.prompt == prompt][-MAX_LANES:]
    names = tuple(side_names([[lane.trace.header] for lane in shown]))
    call.check()
    session.beside = Race(tuple(run_lane(lane.trace.header) for lane in shown), tuple(shown), names=names)
    note = "" if len(shown) == len(ticked) else f"Shown: {len(shown)} of {len(ticked)} ticked runs, all of one prompt."
    return race_drawing(session.beside), gr.Tabs(selected="race"), sentence(note=note)
