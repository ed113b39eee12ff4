"""The Race tab: methods on one prompt, or two runs, against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import gradio as gr
import orjson

from app import links, models
from app.explore.controls import Controls, ExploreTab, filled_in, run_buttons
from app.gradio_internals import View
from app.guard import step_number
from app.jobs import AT_ONCE, Call, Job, Ticket, Update, answer, forgive, notice_box, sentence, wire
from app.methods import DEFAULT_LANES, LANES, PLAIN, grouped, lane_title, method_of, trace_lane
from app.models import Chosen
from app.race import run as race
from app.race.pair import DISTURBED, OTHER_MACHINE, pair_drawing, side_names, side_of
from app.race.run import Lane, Race, default_pair, lane_figures, one_machine, recorded_race, reference
from app.runs import view as runs_view
from app.runs.recordings import FILE_TYPES, read_all, short
from app.runs.view import MAX_LINK, about
from app.session import History, Session
from app.settings import RACED
from app.view import drawn_view
from d2sd import METHODS, InputError
from d2sd.calibration import RunStatistics
from d2sd.calibration.sentences import count

GROUPS = grouped(LANES)  # the checkbox groups of methods
FILLED_IN = ("block_size", "second_block_size", "node_budget")  # the engine fills these in for each method
Pair = tuple[int, int]  # the lanes that are compared


def race_drawing(race: Race, pair: Pair | None = None) -> str:
    """Returns the view's value: every planned lane with its state, and the comparison of two lanes. Lanes that have run also have steps
    and figures.

    pair: the two lanes; None for ``default_pair``.
    """
    base = reference(race)
    names = race.names or tuple(map(lane_title, race.methods))
    lanes = [{"name": name} | _lane(lane) for name, lane in zip(names, race.lanes, strict=False)]
    found = lane_figures(race)
    for lane, figures in zip(lanes, found, strict=True):
        row = asdict(figures)
        totals = row.pop("totals")
        lane["row"] = {**totals, **row}
    running = bool(race.status)
    for number, method in enumerate(race.methods[len(lanes) :]):
        state = "running" if running and number == 0 else "waiting" if running else "not run"
        name = lane_title(method)
        lanes.append({"method": method, "name": name, "sentence": lane_sentence(method), "state": state})
    first = race.lanes[0].trace if race.lanes else None
    data = {
        "status": race.status,
        "prompt": first.prompt if first else "",
        "chat": bool(first and first.header["config"].get("chat")),
        "model": str(first.header["models"].get("preset") or "") if first else "",
        "kind": "runs" if race.names else "recorded" if race.recorded else "own",
        "machine": machine(first.header) if first else "",
        "reference": names[race.lanes.index(base)] if base else "",
        "plain": bool(base and base.trace.header["method"] == PLAIN),
        "lanes": lanes,
        "query": "" if race.names else race_query(race),
    }
    at = None if running else pair or default_pair(race)
    if at:
        disturbed = any(found[n].disturbed for n in at)
        doubt = DISTURBED if disturbed else "" if one_machine(race) else OTHER_MACHINE
        a, b = (RunStatistics([race.lanes[n].trace]) for n in at)
        data["pair"] = {"at": at, **pair_drawing([names[n] for n in at], a, b, doubt)}
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
    """Returns what a method does; empty for an unknown one."""
    method = method_of(lane)
    words = METHODS[method].sentence if method in METHODS else ""
    return words if lane == method else f"{words[:-1]}, drafting and verifying only what is expected to save time."


def machine(header: dict[str, Any]) -> str:
    known = header["hardware"]
    threads = known.get("threads")
    counted = None if threads is None else f"{threads} thread{'' if threads == 1 else 's'}"
    inner = [known.get("machine"), counted, known.get("dtype")]
    words = ", ".join(str(w) for w in inner if w)
    return f"{known.get('device', 'unknown machine')}{f' ({words})' if words else ''}"


def _lane(lane: Lane) -> dict[str, Any]:
    method = trace_lane(lane.trace)
    return {
        "method": method,
        "sentence": lane_sentence(method),
        "state": "broke off" if lane.problem else "done" if lane.complete else "stopped",
        "problem": lane.problem,
        **side_of(lane.trace),
    }


@dataclass(frozen=True, slots=True)
class RaceControls:
    """The fields of a race in the drawer, and its buttons.

    ticks: the methods, as groups of check boxes by title.
    two: the lists of runs that are compared instead of a race.
    """

    ticks: dict[str, gr.CheckboxGroup]
    start: gr.Button
    stop: gr.Button
    notice: gr.Textbox
    two: tuple[gr.Dropdown, gr.Dropdown]
    add: gr.UploadButton


def build_race_controls(controls: Controls) -> RaceControls:
    with controls.buttons:
        start, stop = run_buttons("Race", "start-race", "stop-race", "race")
    notice = notice_box("race-notice")
    with controls.race:
        (first, _), (more, _) = GROUPS.items()
        ticks = {first: _ticks(first)}
        with gr.Accordion("More methods, and what each does", open=False, elem_id="race-more"):
            ticks[more] = _ticks(more)
            gr.Markdown(
                "\n\n".join(
                    f"**{name}**: {lane_sentence(lane)}" for group in GROUPS.values() for lane, name in group.items()
                )
            )
        with gr.Accordion("Two runs instead of a race", open=False, elem_id="race-two"):
            two = tuple(
                gr.Dropdown([NO_RUN], value="", label=f"{n} run", elem_id=f"race-{n.lower()}")
                for n in ("First", "Second")
            )
            add = gr.UploadButton(
                "Add trace files", file_types=FILE_TYPES, file_count="multiple", size="sm", elem_id="race-add"
            )
    return RaceControls(ticks, start, stop, notice, (two[0], two[1]), add)


def _ticks(title: str) -> gr.CheckboxGroup:
    group = GROUPS[title]
    return gr.CheckboxGroup(
        [(name, lane) for lane, name in group.items()],
        value=[lane for lane in group if lane in DEFAULT_LANES],
        label=title,
        elem_id=f"race-{title.lower().replace(' ', '-')}",
        elem_classes="race-methods",
    )


@dataclass(frozen=True, slots=True)
class RaceTab:
    """The components that are restored when the page is loaded. form: all fields of a race, by name."""

    form: dict[str, Any]
    ticks: dict[str, gr.CheckboxGroup]
    lanes: View

    @property
    def outputs(self) -> list[Any]:
        return [*self.ticks.values(), self.lanes]

    def restored(self, history: History, query: Mapping[str, str]) -> list[Any]:
        """Returns updates: the methods if the query is a link to a race, and the window's race if there is one."""
        methods = _linked(query)
        ticks = [[m for m in group if m in methods] if methods else gr.skip() for group in GROUPS.values()]
        return [*ticks, race_drawing(history.race) if history.race else gr.skip()]

    def begins(self, history: History, query: Mapping[str, str]) -> bool:
        """Returns whether a link requests a race that can start immediately.

        The link must be completely valid, its models must be loaded, and its race must not be the window's race already.
        """
        link, methods = links.read_link(query), _linked(query)
        values = {name: self.form[name].value for name in ("model", *RACED)} | filled_in(link)
        if link.ignored or not methods or not values.get("prompt"):
            return False
        return not _ran(history.race, values, methods) and models.loaded(Chosen(values["model"] or ""))


def build_race(tab: gr.Tab, tabs: gr.Tabs, shown: ExploreTab, own: RaceControls) -> RaceTab:
    """Lay out the tab and wire it. ``shown``: the Explore tab, which opens lanes and whose session stores the race."""
    session, opening, notice = shown.session, recorded_race(), own.notice
    # events: ``choose`` compares two lanes, ``at``; ``select`` opens the run of a ``lane`` (its number) in Explore, at ``step`` if given
    drawn = race_drawing(opening) if opening.lanes else None
    lanes = drawn_view(drawn, "race/main.js", sheets=("race/race.css",), elem_id="race")
    form = shown.controls.inputs
    fields = ("prompt", "model", "folder", "vp", *RACED)

    def run(job: Job, explored: Session, *values: Any) -> Iterator[Update[list[Any]]]:
        named = dict(zip(fields, values[len(GROUPS) :], strict=True))
        methods = [lane for group in values[: len(GROUPS)] for lane in group or []]
        chosen = Chosen.read(*(named.pop(name) for name in ("model", "folder", "vp")))

        def draw(raced: Race) -> list[Any]:
            if raced.status or not raced.lanes:
                return [race_drawing(raced), gr.skip(), gr.skip(), gr.skip()]
            keep_race(explored.history, raced)
            explored.two = None
            listed = runs_view.runs_drawing(explored.history, explored.shown.key)
            return [race_drawing(raced), listed, *offer(explored, "", "")]

        for update in race.run_race(job, named.pop("prompt") or "", chosen, methods, named):
            yield update.map(draw)

    forgive(notice, [box.change for box in (*own.ticks.values(), *(form[name] for name in fields))])
    # A separate ticket: a run in Explore and a race wait for each other, but do not stop each other.
    ticket, outputs = gr.State(Ticket()), [lanes, shown.runs, *own.two]
    inputs = [session, *own.ticks.values(), *(form[name] for name in fields)]
    wire(own.start.click, run, ticket, inputs, outputs, notice, stop=own.stop)
    tab.select(offer, [session, *own.two], own.two, **AT_ONCE)
    for event in (own.two[0].input, own.two[1].input):
        answer(event, choose_runs, ticket, [session, *own.two], [*own.two, lanes], notice, **AT_ONCE)
    added = answer(own.add.upload, add_files, ticket, [session, own.add], [shown.runs], notice, show_progress="minimal")
    added.then(offer, [session, *own.two], own.two, **AT_ONCE)
    answer(lanes.choose, choose_lanes, ticket, [session], [lanes], notice, **AT_ONCE)
    shown.after(answer(lanes.select, open_lane, session, [session], [shown.view, tabs], notice, **AT_ONCE))
    return RaceTab(form, own.ticks, lanes)


def _linked(query: Mapping[str, str]) -> list[str]:
    named = query.get("methods", "").split(",")
    return [lane for lane in LANES if lane in named]


def _ran(race: Race | None, values: Mapping[str, Any], methods: list[str]) -> bool:
    """Returns whether a race has these values and methods. It may lack methods that have no drafter in its models."""
    if race is None or not set(race.methods) <= set(methods):
        return False
    own = links.read_link(dict(parse_qsl(race_query(race)))).values
    return all(own.get(name) == values[name] for name in ("prompt", "model", *RACED))


def keep_race(history: History, raced: Race) -> None:
    history.race = raced
    for lane, figures in reversed([*zip(raced.lanes, lane_figures(raced), strict=True)]):
        if lane.trace.steps:
            history.keep(race.recorded(lane, figures), "Race")


def shown_race(session: Session) -> Race:
    return session.two or session.history.race or recorded_race()


def open_lane(call: Call, session: Session) -> tuple[Any, Any, Any]:
    """Show a lane of the race in Explore, unless another run was requested in the meantime."""
    raced = shown_race(session)
    lanes, step = raced.lanes, step_number(call.data.get("step"))
    at = call.data.get("lane")
    if not isinstance(at, int) or not 0 <= at < len(lanes) or not lanes[at].trace.steps:
        raise InputError("This lane no longer exists; press Race again.")
    run = race.recorded(lanes[at], lane_figures(raced)[at])
    call.check()
    wanted = None if step is None else {"step": step, "node": None}
    source = "Recorded" if raced.recorded else "Race"
    return session.show(run, source, wanted=wanted), gr.Tabs(selected="explore"), sentence()


def choose_lanes(call: Call, session: Session) -> tuple[str, Any]:
    """Compare the two lanes ``at`` of the shown race."""
    raced, at = shown_race(session), call.data.get("at")
    steps = [n for n, lane in enumerate(raced.lanes) if lane.trace.steps]
    if not isinstance(at, list) or len(at) != 2 or not all(n in steps for n in at):
        raise InputError("This lane no longer exists; press Race again.")
    return race_drawing(raced, (at[0], at[1])), gr.skip()


# Two runs of the list instead of a race.

NO_RUN = ("the race", "")


def offered(session: Session, first: str | None, second: str | None) -> tuple[list[Any], tuple[str, str]]:
    """Returns the lists of runs, and the keys of the chosen ones.

    The first list has the runs that share a prompt with another run; the second those of the same prompt as the first choice.
    """
    runs = {kept.run.key: kept for kept in session.history.runs}

    def partners(key: str | None) -> list[str]:
        asked = runs[key].header.get("prompt") if key in runs else None
        return [k for k, kept in runs.items() if k != key and key in runs and kept.header.get("prompt") == asked]

    left, right = [key for key in runs if partners(key)], partners(first)
    one = first if first in left and first else ""
    other = second if second in right and second else next(iter(right), "")
    # the prompt last, since a list shows only the beginning
    words = {key: f"{about(k.header)} ({k.source}): {k.label}" for key, k in runs.items()}
    boxes: list[Any] = [
        gr.Dropdown([NO_RUN, *((words[key], key) for key in side)], value=value)
        for side, value in ((left, one), (right, other))
    ]
    return boxes, (one, other)


def offer(session: Session, first: str | None, second: str | None) -> list[Any]:
    return offered(session, first, second)[0]


def choose_runs(_: Call, session: Session, first: str | None, second: str | None) -> list[Any]:
    """Show two runs of the list as lanes, or the race again."""
    boxes, keys = offered(session, first, second)
    chosen = [session.history.find(key) for key in keys]
    traces = [kept.run.trace() for kept in chosen if kept]
    session.two = None
    if len(traces) == 2:
        one, other = traces
        names = side_names([one.header], [other.header])
        methods = tuple(map(trace_lane, traces))
        session.two = Race(one.prompt, methods, tuple(map(Lane, traces)), names=names)
    return [*boxes, race_drawing(shown_race(session)), sentence()]


def add_files(call: Call, session: Session, paths: list[str] | None) -> tuple[Any, Any]:
    """Add the runs of trace files to the list, so that they can be chosen."""
    added, problem = 0, ""
    for path in paths or []:
        try:
            runs, _ = read_all(path)
        except InputError as error:
            problem = problem or f"{short(Path(path).name)} was not read: {error}"
            continue
        for number, run in reversed(list(enumerate(runs, 1))):
            session.history.keep(run, "Opened", Path(path).name if len(runs) == 1 else f"{number} of {Path(path).name}")
        added += len(runs)
    note = f"Added: {count(added, 'run')}. Choose two that share a prompt."
    return runs_view.runs_drawing(session.history, session.shown.key), sentence(problem, note=note)
