"""The Compare tab: two runs or two sets of runs side by side, and their differences with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import orjson

from app.calibrate import measure as calibrate
from app.explore.controls import ExploreTab
from app.jobs import AT_ONCE, Call, Ticket, answer, notice_box, sentence
from app.methods import lane_title, run_title
from app.race.run import recorded_race
from app.runs.recordings import FILE_TYPES, Recording, RunSet, read_uploads
from app.runs.view import about
from app.session import History, Session
from app.view import FIGURES, drawn_view
from d2sd import InputError, Trace
from d2sd.calibration.comparison import align, lead_of, text_of
from d2sd.figures.comparison import comparison_results
from d2sd.trace.metrics import verdict
from d2sd.trace.text import encodable

EXPLANATION = "Compare two methods, drafters or settings on the same prompts. Runs that you make, open or measure are listed here if two of them have the same prompt."
OPENING = ("dflash", "d2sd")  # lanes of the recorded race that are compared before anything is run
MAX_PAIRS = 40
MAX_PAIR_CHARACTERS = 400_000  # maximum number of characters of all texts shown side by side
MAX_LABEL = 80


def build_compare(tab: gr.Tab, tabs: gr.Tabs, shown: ExploreTab) -> None:
    """Lay out the tab and wire it. ``shown``: the Explore tab, whose session stores the runs and sets."""
    session = shown.session
    with gr.Row(elem_classes="beside"):
        with gr.Column(scale=0, min_width=290, elem_classes="settings"):
            gr.Markdown(EXPLANATION, elem_id="compare-explained")
            sides = [gr.Dropdown([], label=f"{name}", elem_id=f"compare-{name.lower()}") for name in "AB"]
            with gr.Row(elem_classes="buttons"):
                go = gr.Button("Compare", variant="primary", elem_id="compare-go", min_width=80)
                swap = gr.Button("Swap", elem_id="compare-swap", min_width=60)
            add = gr.UploadButton(
                "Add trace files as a set",
                file_types=FILE_TYPES,
                file_count="multiple",
                elem_id="compare-add",
            )
            notice = notice_box("compare-notice")
        with gr.Column(scale=1, min_width=320):
            # the view's event ``select`` opens ``step`` of ``run`` of ``side`` (0: A, 1: B) in Explore
            sheets = ("compare/compare.css",)
            view = drawn_view(None, "compare/main.js", constants=FIGURES, sheets=sheets, elem_id="compare-view")

    inputs = [session, *sides]
    ticket = gr.State(Ticket())
    opened = tab.select(offer, inputs, sides, **AT_ONCE)
    swapped = swap.click(lambda session, a, b: offer(session, b, a), inputs, sides, **AT_ONCE)
    chosen = sides[0].input(offer, inputs, sides, **AT_ONCE)  # B offers only runs and sets that can be compared with A
    for event in (go.click, sides[1].input, opened.then, swapped.then, chosen.then):
        answer(event, show_comparison, ticket, inputs, [view], notice, show_progress="hidden", concurrency_limit=4)
    add.upload(add_files, [session, add, *sides], [*sides, notice], show_progress="minimal")
    shown.after(answer(view.select, open_step, session, inputs, [shown.view, tabs], notice, show_progress="hidden"))


def offer(session: Session, a: str | None, b: str | None) -> list[gr.Dropdown]:
    """Returns the dropdowns. A offers the runs and sets that share a prompt with another run or set. B offers those
    that share a prompt with the run or set selected in A.

    The selection is kept if possible. Otherwise, the newest pair that shares a prompt is selected, or two lanes of the recorded race.
    """
    known = {name: (title, _asked(session.history, name)) for title, name in choices(session.history)}

    def partners_of(name: str) -> list[str]:
        return [other for other, (_, asked) in known.items() if other != name and asked & known[name][1]]

    left = [name for name in known if partners_of(name)]
    own = [name for name in left if not name.startswith("lane")]
    pairs = [(other, name) for name in own for other in partners_of(name) if other in own]
    recorded = [name for name in left if name.removeprefix("lane ") in OPENING]
    first, second = pairs[0] if pairs else recorded if len(recorded) == 2 else (None, None)
    a = a if a in left else first
    right = partners_of(a) if a else []
    b = b if b in right else second if second in right else next(iter(right), None)
    named = [[(known[name][0], name) for name in side] for side in (left, right)]
    return [gr.Dropdown(choices=offered, value=value) for offered, value in zip(named, (a, b), strict=True)]


def _asked(history: History, name: str) -> set[str]:
    """Returns the prompts of a run or set. A log without prompts counts as one empty prompt."""
    return {str(recording.header.get("prompt") or "") for recording in pick(history, name).runs}


def show_comparison(_: Call, session: Session, a: str | None, b: str | None) -> tuple[Any, Any]:
    if not (a and b):
        return gr.skip(), sentence(note="Nothing can be compared yet: no two runs have the same prompt.")
    return comparison_drawing(pick(session.history, a), pick(session.history, b)), sentence()


def add_files(session: Session, paths: list[str] | None, a: str | None, b: str | None) -> list[Any]:
    """Store trace files as a set, and offer the set in both dropdowns."""
    if not paths:
        return [gr.skip(), gr.skip(), sentence(problem="Choose one or more trace files first.")]
    good, bad = read_uploads([Path(p) for p in paths])
    runs: list[Recording] = [recording for recording, _ in good]
    if not runs:
        return [gr.skip(), gr.skip(), sentence(problem=f"No file could be read. The first error: {bad[0]}")]
    title = runs[0].label if len(runs) == 1 else f"{len(runs)} traces: {runs[0].label} …"
    session.history.keep_set(title, runs)
    boxes = offer(session, a, b)
    return [*boxes, sentence(problem=calibrate.left_out(bad, len(paths)), note=f"Added: {title}. Choose it as A or B.")]


def open_step(call: Call, session: Session, a: str | None, b: str | None) -> tuple[Any, Any, Any]:
    side, run, step = (call.data.get(name) for name in ("side", "run", "step"))
    if side not in (0, 1) or not isinstance(run, int) or not isinstance(step, int):
        return gr.skip(), gr.skip(), gr.skip()
    runs = pick(session.history, (a, b)[side] or "").runs
    if not 0 <= run < len(runs):
        raise InputError("this run is no longer stored; compare again")
    call.check()
    wanted = {"step": max(0, step), "node": None}
    return session.show(runs[run].run, "Compare", wanted=wanted), gr.Tabs(selected="explore"), sentence()


# The runs and sets to choose from, and the value of the view.


def choices(history: History) -> list[tuple[str, str]]:
    sets = [(f"Set: {s.title} ({about(s.runs[0].header)})", f"set {s.title}") for s in history.sets]
    # method and prompt first, since a dropdown shows only the beginning
    runs = [
        (f"{run_title(k.header)}: {k.label} ({about(k.header)}, {k.source})", f"run {k.run.key}") for k in history.runs
    ]
    recorded = [(f"Recorded race: {lane_title(lane)}", f"lane {lane}") for lane in recorded_race().methods]
    return sets + runs + recorded


def pick(history: History, name: str | None) -> RunSet:
    """Returns the runs of a dropdown's entry. Raises ``InputError`` if the runs are no longer stored."""
    kind, _, which = (name or "").partition(" ")
    race = recorded_race()
    if kind == "lane" and which in race.methods:
        lane = race.lanes[race.methods.index(which)]
        return RunSet.of(f"Recorded race: {lane_title(which)}", [lane.trace])
    if kind == "run" and (found := history.find(which)):
        return RunSet(f"{found.label} ({about(found.header)})", (found,))
    chosen = next((s for s in history.sets if s.title == which), None)
    if kind == "set" and chosen:
        return replace(chosen, title=f"{chosen.title} ({about(chosen.runs[0].header)})")
    raise InputError("choose two runs or sets that are still in the list" if name else "choose what to compare")


def comparison_drawing(a: RunSet, b: RunSet) -> str:
    results = comparison_results(a.statistics, b.statistics).to_dict()
    return orjson.dumps({"titles": [a.title, b.title], **results, "pairs": side_by_side(a, b)}).decode()


def side_by_side(a: RunSet, b: RunSet) -> list[dict[str, Any]]:
    """Returns, for each common prompt, the texts of both sides with their steps, aligned by characters."""
    pairs: list[dict[str, Any]] = []
    size = 0
    for left, right in partners(a.prompts, b.prompts):
        traces = a.traces[left], b.traces[right]
        size += sum(len(text_of(step)) for trace in traces for step in trace.steps)
        if pairs and size > MAX_PAIR_CHARACTERS:
            break
        found = align(*traces)
        pairs.append(
            {
                "prompt": " ".join(a.prompts[left].split())[:MAX_LABEL],
                "differs_at": found.differs_at,
                "parts_at": found.parts_at,
                "by_tokens": found.by_tokens,
                "runs": [left, right],
                "leads": ["" if found.by_tokens else encodable(lead_of(trace)) for trace in traces],
                "sides": [_steps(*side) for side in zip(traces, (found.ends_a, found.ends_b), strict=True)],
            }
        )
    return pairs


def partners(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the indices of runs of A and B with the same prompt, as pairs. Two single runs are always a pair."""
    if len(a) == len(b) == 1:
        return [(0, 0)]
    places = {prompt: n for n, prompt in reversed(list(enumerate(b)))}
    found = [(n, places[prompt]) for n, prompt in enumerate(a) if prompt in places]
    return found[:MAX_PAIRS]


def _steps(trace: Trace, ends: Sequence[int]) -> list[list[Any]]:
    """Returns for each step: end in characters, tokens with proposers, ``verdict``, and accepted length of the first draft (−1: unknown)."""
    return [
        [
            end,
            [[encodable(c.text), c.proposer] for c in step.committed],
            verdict(step) or "",
            -1 if step.actual_boundary is None else step.actual_boundary,
        ]
        for step, end in zip(trace.steps, ends, strict=True)
    ]
