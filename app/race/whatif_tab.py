"""The what-if panel of Race: choice of the recorded run and of the setting to vary, and the results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from app.jobs import Job, Ticket, Update, notice_box, sentence, wire
from app.models import Chosen, grouped
from app.race import whatif
from app.race.lanes import DEFAULT, Race, lane_name, recorded_race
from app.race.whatif import WhatIfView, drawn, recorded_answers
from app.session import Session
from d2sd import METHODS, Trace
from d2sd.trace.run import RecordedRun
from d2sd.whatif import recorded_config

EXPLORE = "The run in Explore"
FAVOURITE = "d2sd"
NOT_GREEDY = (
    "The race was sampled at a temperature above 0, where every setting gives another text. What-if needs a run at "
    "temperature 0."
)
EXPLANATION = (
    "**What if?** Nothing is decoded again. At temperature 0 every method and setting commits the same text, the "
    "target's own choices, so the recorded text already says what the target would accept. Only the drafters run over "
    "it once more, with other settings. The answers are therefore exact: they equal those of real runs, step by step. "
    "Cost-aware settings also depend on measured times, so a real run may differ at some steps."
)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The parts that a new race changes."""

    source: gr.Dropdown
    charts: WhatIfView
    notice: gr.Textbox

    @property
    def outputs(self) -> list[Any]:
        """What ``about`` changes."""
        return [self.source, self.charts, self.notice]

    def about(self, race: Race | None) -> list[Any]:
        """Returns the updates for a new race, or for none: its runs as choices, and no answers."""
        if race is None:
            return [gr.skip(), gr.skip(), gr.skip()]
        drawn = [lane.trace.header["method"] for lane in race.lanes if recorded_config(lane.trace).temperature]
        return [gr.Dropdown(**lane_choices(race)), None, sentence(note=NOT_GREEDY if drawn else "")]


def build_whatif(explore: gr.State, chosen: list[Component]) -> WhatIf:
    """Lay out the panel and wire it.

    ``explore``: the session of Explore, whose window keeps the race; ``chosen``: the choice of models, for runs that do
    not name bundled ones.
    """
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
            [(name, lane) for group in grouped(whatif.LANES).values() for lane, name in group.items()],
            value=[m for m in DEFAULT[1:] if m in METHODS],
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

    def run(job: Job, wanted: str, explored: Session, *values: Any) -> Iterator[Update[str]]:
        title, trace = _trace(explored.history.race or recorded_race(), wanted, explored.shown)
        for update in whatif.run(job, title, trace, Chosen.read(*values[:3]), *values[3:]):
            yield update.map(lambda answers: drawn(answers).value())

    wire(go.click, run, gr.State(Ticket()), [source, explore, *chosen, sweeps, methods], [charts], notice, stop=stop)
    return WhatIf(source, charts, notice)


def lane_choices(race: Race) -> dict[str, Any]:
    """Returns the runs that can be replayed: that of Explore and the lanes of a race."""
    lanes = [lane_name(lane.trace) for lane in race.lanes]
    first = FAVOURITE if FAVOURITE in lanes else lanes[0] if lanes else EXPLORE
    return {"choices": [*((f"Race: {m}", m) for m in lanes), (EXPLORE, EXPLORE)], "value": first}


def _trace(race: Race, chosen: str, shown: RecordedRun) -> tuple[str, Trace | None]:
    """Returns the name of the chosen run, and the run; ``shown``: the run in Explore."""
    if chosen == EXPLORE:
        return EXPLORE, shown.trace() if len(shown) else None
    lanes = {lane_name(lane.trace): lane.trace for lane in race.lanes}
    return f"Race: {chosen}", lanes.get(chosen)
