"""The what-if panel of Race: which recorded run is asked, what is varied, and the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr
from gradio.components import Component

from app import whatif
from app.models import Chosen
from app.race import Race
from app.record import DEFAULT, recorded_answers, recorded_race
from app.run_lines import RunLines
from app.session import Session
from app.tabs.notice import MODEL, ask, line_of, notice_box, sentence
from app.update import TURNS
from app.views.whatif import WhatIfView, drawing
from d2sd import METHODS, InputError, Trace

EXPLORE = "The run in Explore"
FAVOURITE = "d2sd"
EXPLANATION = (
    "**What if?** Nothing is decoded again. At temperature 0 every method and setting commits the same text, the "
    "target's own choices, so the recorded text already says what the target would accept. Only the drafters run over "
    "it once more, with other settings. The answers are therefore exact: they equal those of real runs, step by step."
)


def build_whatif(explore: gr.State, kept: gr.State, chosen: list[Component]) -> gr.Dropdown:
    """Lay out the panel and wire it; returns the choice of runs.

    ``explore``: the session of Explore; ``kept``: the window's race, None: the recorded one; ``chosen``: the choice of
    models, for runs that do not name bundled ones.
    """
    session, number = gr.State(Session()), gr.State(0)
    gr.Markdown(EXPLANATION, elem_id="whatif-explained")
    with gr.Row(elem_id="whatif-settings"):
        source = gr.Dropdown(
            **lane_choices(recorded_race()), label="Recorded run", elem_id="whatif-source", scale=1, min_width=150
        )
        sweeps = gr.CheckboxGroup(
            [(s.label[:1].upper() + s.label[1:], s.name) for s in whatif.SWEEPS.values()],
            value=list(whatif.SWEEPS),
            label="Vary",
            elem_id="whatif-sweeps",
            scale=1,
            min_width=150,
        )
        methods = gr.CheckboxGroup(
            [m.id for m in METHODS.values() if m.settings],
            value=list(DEFAULT[1:]),
            label="Methods",
            elem_id="whatif-methods",
            scale=4,
            min_width=260,
        )
        with gr.Column(scale=0, min_width=110):
            go = gr.Button("Ask", variant="primary", elem_id="ask", size="sm")
            stop = gr.Button("Stop", elem_id="stop-asking", size="sm")
    notice = notice_box("whatif-notice")
    charts = WhatIfView(recorded_answers())

    def run(
        current: Session, mine: int, race: Race | None, wanted: str, explored: Session, *values: Any
    ) -> Iterator[tuple[Any, Any]]:
        models, asked = Chosen.read(*values[:3]), values[3:]
        try:
            title, trace = _trace(race or recorded_race(), wanted, explored.shown)
        except InputError as error:
            yield gr.skip(), sentence(problem=f"{error}")
            return
        for update in TURNS.taken(current, whatif.run(current, mine, title, trace, models, *asked)):
            yield drawing(update.value) if update.value else gr.skip(), sentence(update.problem, update.news)

    requested = go.click(ask, session, [number, notice, line_of(notice, session)], show_progress="hidden", queue=False)
    requested.then(
        run,
        [session, number, kept, source, explore, *chosen, sweeps, methods],
        [charts, notice],
        show_progress="hidden",
        concurrency_id=MODEL,
        concurrency_limit=1,
        trigger_mode="multiple",
    )
    stop.click(Session.stop, session, None, show_progress="hidden", queue=False)
    return source


def lane_choices(race: Race) -> dict[str, Any]:
    """The runs that can be asked: that of Explore and the lanes of a race."""
    lanes = [lane.trace.header["method"] for lane in race.lanes]
    first = FAVOURITE if FAVOURITE in lanes else lanes[0] if lanes else EXPLORE
    return {"choices": [*((f"Race: {m}", m) for m in lanes), (EXPLORE, EXPLORE)], "value": first}


def _trace(race: Race, chosen: str, shown: RunLines) -> tuple[str, Trace | None]:
    """What the chosen run is called, and the run; ``shown``: the run in Explore."""
    if chosen == EXPLORE:
        return EXPLORE, shown.trace() if len(shown) else None
    lanes = {lane.trace.header["method"]: lane.trace for lane in race.lanes}
    return f"Race: {chosen}", lanes.get(chosen)
