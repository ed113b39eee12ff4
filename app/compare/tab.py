"""The Compare tab: two runs or two sets of runs side by side, and their differences with intervals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import orjson

from app.calibrate import measure as calibrate
from app.compare import compare
from app.explore.controls import Shown
from app.jobs import AT_ONCE, Call, Job, Ticket, Update, answer, notice_box, sentence, wire
from app.model_choice import build_models
from app.models import Chosen
from app.runs.recordings import FILE_TYPES, Recording, RunSet, read_uploads
from app.session import Session
from app.view import FIGURES, drawn_view
from d2sd import InputError

EXPLANATION = (
    "Two drafters, two checkpoints, two methods or two settings: A against B. All runs, races and measured sets of this "
    "window are listed here; add trace files to compare sets."
)
REPLAY_EXPLANATION = (
    "At temperature 0 a text is the same with every drafter. A's texts are therefore enough to compute the acceptance of "
    "another drafter for the same target, without decoding again: in total, by prompt group and by position."
)


def build_replay(session: gr.State, side: gr.Dropdown) -> None:
    """Lay out the fold and wire it. ``side``: A, whose texts are replayed."""
    with gr.Accordion("A's texts with another drafter", open=False, elem_id="replay"):
        gr.Markdown(REPLAY_EXPLANATION)
        chosen = list(build_models("replay-").values())
        with gr.Row(elem_classes="buttons"):
            go = gr.Button("Replay", elem_id="replay-go", min_width=80)
            stop = gr.Button("Stop", elem_id="replay-stop", min_width=60, visible=False)
        notice = notice_box("replay-notice")
        found = gr.Textbox(
            visible=False, interactive=False, lines=4, max_lines=20, label="Both drafters", elem_id="replay-found"
        )

    def run(job: Job, session: Session, a: str | None, *models: Any) -> Iterator[Update[gr.Textbox]]:
        for update in compare.replay(job, compare.pick(session.history, a), Chosen.read(*models)):
            yield update.map(lambda table: gr.Textbox(table, visible=True))

    wire(go.click, run, gr.State(Ticket()), [session, side, *chosen], [found], notice, stop=stop)


def drawing(a: RunSet, b: RunSet) -> str:
    """Returns the view's value for two sides."""
    return orjson.dumps({**compare.compared(a, b.title, b.gathering), "pairs": compare.side_by_side(a, b)}).decode()


def build_compare(tab: gr.Tab, tabs: gr.Tabs, shown: Shown) -> None:
    """Lay out the tab and wire it. ``shown``: Explore, whose window keeps what is compared."""
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
            called = gr.Textbox(
                label="Name of the set in B", placeholder="a name, then Enter", max_length=60, elem_id="compare-name"
            )
            notice = notice_box("compare-notice")
        with gr.Column(scale=1, min_width=320):
            # ``select`` with ``side`` (0 or 1), ``run`` and ``step`` asks for a step in Explore
            sheets = ("compare/compare.css",)
            view = drawn_view(None, "compare/main.js", constants=FIGURES, sheets=sheets, elem_id="compare-view")
            build_replay(session, sides[0])

    inputs = [session, *sides]
    ticket = gr.State(Ticket())
    tab.select(offer, inputs, sides, **AT_ONCE)
    swapped = swap.click(lambda a, b: (b, a), sides, sides, **AT_ONCE)
    for event in (go.click, *(side.input for side in sides), swapped.then):
        answer(event, show, ticket, inputs, [view], notice, show_progress="hidden", concurrency_limit=4)
    add.upload(add_files, [session, add, *sides], [*sides, notice], show_progress="minimal")
    called.submit(rename, [session, called, *sides], [called, *sides, notice], **AT_ONCE)
    shown.after(answer(view.select, open_step, session, inputs, [shown.view, tabs], notice, show_progress="hidden"))


def offer(session: Session, a: str | None, b: str | None) -> list[gr.Dropdown]:
    """Returns the runs and sets that can be compared; at first the two newest are chosen."""
    known = compare.choices(session.history)
    names = [name for _, name in known]
    first = [a if a in names else None, b if b in names else None]
    rest = [name for name in names if name not in first]
    chosen = [first[0] or (rest[1] if len(rest) > 1 else None), first[1] or (rest[0] if rest else None)]
    return [gr.Dropdown(choices=known, value=value) for value in chosen]


def show(_: Call, session: Session, a: str | None, b: str | None) -> tuple[Any, Any]:
    """Compare two choices."""
    return drawing(compare.pick(session.history, a), compare.pick(session.history, b)), sentence()


def add_files(session: Session, paths: list[str] | None, a: str | None, b: str | None) -> list[Any]:
    """Keep trace files as a set that can be chosen."""
    if not paths:
        return [gr.skip(), gr.skip(), sentence(problem="Choose one or more trace files first.")]
    good, bad = read_uploads([Path(p) for p in paths])
    runs: list[Recording] = [recording for recording, _ in good]
    if not runs:
        return [gr.skip(), gr.skip(), sentence(problem=f"No file was read; the first: {bad[0]}")]
    title = runs[0].label if len(runs) == 1 else f"{len(runs)} traces: {runs[0].label} …"
    session.history.keep_set(title, runs)
    boxes = offer(session, a, b)
    return [*boxes, sentence(problem=calibrate.left_out(bad, len(paths)), note=f"Added: {title}. Choose it as A or B.")]


def rename(session: Session, called: str | None, a: str | None, b: str | None) -> list[Any]:
    """Rename the set in B; runs are renamed in the list of runs."""
    kind, _, title = (b or "").partition(" ")
    if kind != "set":
        return [gr.skip()] * 3 + [sentence(note="B is a run; rename it in the list of runs below Explore.")]
    new = f"set {session.history.rename_set(title, called or '')}"
    return ["", *offer(session, new if a == b else a, new), sentence()]


def open_step(call: Call, session: Session, a: str | None, b: str | None) -> tuple[Any, Any, Any]:
    """Show a step of one side in Explore."""
    side, run, step = (call.data.get(name) for name in ("side", "run", "step"))
    if side not in (0, 1) or not isinstance(run, int) or not isinstance(step, int):
        return gr.skip(), gr.skip(), gr.skip()
    runs = compare.pick(session.history, (a, b)[side] or "").runs
    if not 0 <= run < len(runs):
        raise InputError("this run is no longer there; compare again")
    call.check()
    wanted = {"step": max(0, step), "node": None}
    return session.show(runs[run].run, "Compare", wanted=wanted), gr.Tabs(selected="explore"), sentence()
