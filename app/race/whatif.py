"""What if, the panel below the race: replays a recorded greedy run with other values of one setting at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import gradio as gr
import msgspec
import orjson
from gradio.components import Component

import d2sd
from app import models
from app.gradio_internals import View
from app.jobs import Job, Ticket, Update, notice_box, sentence, wire
from app.machine import on_gpu
from app.methods import AWARE, DEFAULT_LANES, grouped, lane_of, method_of, trace_lane
from app.models import Chosen
from app.race.run import Race, recorded_race, stored
from app.session import Session
from app.view import FIGURES, drawn_view
from d2sd import METHODS, DecodeConfig, Engine, InputError, Trace
from d2sd.calibration.comparison import length_difference
from d2sd.costs.machines import MACHINES
from d2sd.figures.whatif import Line, Point, Recorded, Sweep, lane_name, sweep_panels
from d2sd.folders.store import REMOTE
from d2sd.trace.run import RecordedRun
from d2sd.whatif import Replay, ReplayOutcome, recorded_config

Value = int | None


@dataclass(frozen=True, slots=True)
class Varied:
    """A setting that is varied. ``name``: the field of ``DecodeConfig``."""

    name: str
    symbol: str
    label: str
    values: tuple[int, ...]


SWEEPS = {
    s.name: s
    for s in (
        Varied("num_branches", "K", "branches K", (1, 2, 4, 6, 8, 12)),
        Varied("block_size", "γ", "block size γ", (4, 6, 8, 10, 12, 16)),
        Varied("draft_depth", "d", "draft depth d", (1, 2, 3, 5, 7)),
        Varied("node_budget", "B", "node budget B", (8, 16, 32, 64, 128)),
    )
}
LANES = (*(m.id for m in METHODS.values() if m.settings), *AWARE)
EXPLORE = "The run in Explore"
FAVOURITE = "d2sd"
NOT_GREEDY = (
    "The race was sampled at a temperature above 0, where every setting gives a different text. What-if needs a run at "
    "temperature 0."
)
EXPLANATION = (
    "**What if?** Replays a recorded run with other settings. At temperature 0, every method and setting writes the "
    "text that the large model alone would write. So the recorded text shows which guesses would be accepted, and only "
    "the drafters run again. The results are exact: a real run would have the same steps. Only cost-aware methods may "
    "differ at some steps, because they also depend on measured times."
)


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """A point of a sweep: ``value`` of its setting (None: no node budget) for ``lane``, and the resolved ``config``."""

    sweep: str
    lane: str
    value: Value
    config: DecodeConfig


@dataclass(frozen=True, slots=True)
class Answers:
    """Points of a run's sweeps, and the outcomes that are known so far, by resolved config.

    base: config of the run.
    recorded: whether the outcomes are bundled with the recorded race.
    """

    source: str
    trace: Trace
    base: DecodeConfig
    points: tuple[SweepPoint, ...]
    outcomes: dict[DecodeConfig, ReplayOutcome] = field(default_factory=dict)
    status: str = ""
    recorded: bool = False


def run_sweeps(
    job: Job, source: str, trace: Trace | None, chosen: Chosen, sweeps: Sequence[str], lanes: Sequence[str]
) -> Iterator[Update[Answers]]:
    """Yield answers point by point. Leaves out methods without a drafter. Raises ``InputError`` if nothing can be replayed.

    source: name of the run on the page.
    chosen: models to use if the trace does not name a preset.
    lanes: methods; names of cost-aware ones end with the suffix that race lanes have.
    """
    if trace is None:
        raise InputError("there is no run to replay; run something first")
    base = recorded_config(trace)
    if base.temperature != 0:
        raise InputError("what-if needs a run at temperature 0: only then is the text the same for every setting")
    preset = trace.header["models"].get("preset")
    which = Chosen(preset) if preset in (*d2sd.presets(), *REMOTE) else chosen
    engine = models.engine(which)
    missing = {lane: reason for lane in lanes if (reason := engine.obstacle(method_of(lane)))}
    able = [lane for lane in lanes if lane not in missing]
    if lanes and not able:
        raise InputError(missing[lanes[0]])
    points = sweep_points(engine, base, sweeps, able)
    if not points:
        raise InputError("nothing is selected; tick at least one setting and one method")
    yield Update(news="Reading the recorded text …")
    answers = Answers(source, trace, base, points)
    configs = list(dict.fromkeys(p.config for p in points))
    outcomes = _outcomes(which, trace, configs)
    for count, config in enumerate(configs, 1):
        if job.cancelled():
            break
        yield Update(replace(answers, status=f"{count} of {len(configs)}: {config.method} …"))
        answers = replace(answers, outcomes={**answers.outcomes, config: next(outcomes)})
    yield Update(answers, note=" ".join(f"Left out: {reason}." for reason in dict.fromkeys(missing.values())))


@on_gpu
def _outcomes(chosen: Chosen, trace: Trace, configs: Sequence[DecodeConfig]) -> Iterator[ReplayOutcome]:
    yield from Replay(models.engine(chosen), trace).run(configs)


def sweep_points(
    engine: Engine, base: DecodeConfig, sweeps: Sequence[str], lanes: Sequence[str]
) -> tuple[SweepPoint, ...]:
    """Returns all points of the sweeps that these models can run, including points with the values of the run.

    If a method does not use a setting, its points for all values of this setting have the same config, and one replay is
    enough. Raises ``InputError`` for a method that these models cannot run at all.
    """
    out = []
    for lane in (lane for lane in LANES if lane in lanes):
        method = method_of(lane)
        own = replace(
            base,
            method=method,
            # γ₂ equals γ unless the run set it separately
            second_block_size=None if base.second_block_size == base.block_size else base.second_block_size,
            node_budget=base.node_budget if lane == method else None,
            cost_aware=lane != method,
            backend="auto",
            inspect=False,
        )
        plain = engine.resolve(own)
        for sweep in (s for s in SWEEPS.values() if s.name in sweeps):
            for value in values(sweep, base):
                if sweep.name not in METHODS[method].settings:
                    out.append(SweepPoint(sweep.name, lane, value, plain))
                    continue
                if value is None and METHODS[method].default_budget:
                    continue
                try:
                    varied: dict[str, Any] = {sweep.name: value}
                    config = engine.resolve(replace(own, **varied))
                except InputError:  # incompatible with the other settings, such as K = 12 with a block of 8
                    continue
                out.append(SweepPoint(sweep.name, lane, value, config))
    return tuple(out)


def values(sweep: Varied, base: DecodeConfig) -> list[Value]:
    """Returns the values of a sweep in order, with the value of the run; None (no node budget) is last."""
    own: Value = getattr(base, sweep.name)
    known = sorted({*sweep.values, *([] if own is None else [own])})
    return [*known, None] if sweep.name == "node_budget" else [*known]


class WhatIfResults(msgspec.Struct, frozen=True):
    """The answers in the form that the view and recordings use.

    tokens: number of tokens of the text.
    run: the measured run.
    sweeps: one for each varied setting.
    budget: B of the run, which all replays have but those of other B; None if there was no limit.
    """

    source: str
    status: str
    recorded: bool
    tokens: int
    run: Recorded
    sweeps: tuple[Sweep, ...]
    budget: int | None = None

    def value(self) -> str:
        limit = f", B = {self.budget} also for other K and γ" if self.budget else ""
        measured = f"{self.tokens} tokens; recorded: α {self.run.alpha:.2f}, {self.run.nodes:.1f} nodes per step{limit}"
        shown = {"source": self.source, "status": self.status, "recorded": self.recorded, "measured": measured}
        panels = sweep_panels(self.sweeps, self.run)
        return orjson.dumps({**shown, "panels": [p.to_dict() for p in panels]}).decode()


def results(answers: Answers) -> WhatIfResults:
    totals, base = answers.trace.totals, answers.base
    run = Recorded(lane_of(base.method, base.cost_aware), totals.mean_acceptance_length, totals.nodes_per_step)
    swept = {p.sweep for p in answers.points}
    sweeps = tuple(_sweep(answers, varied) for varied in SWEEPS.values() if varied.name in swept)
    about = answers.source, answers.status, answers.recorded, totals.tokens
    return WhatIfResults(*about, run, sweeps, base.node_budget)


def _sweep(answers: Answers, varied: Varied) -> Sweep:
    known = values(varied, answers.base)
    own = getattr(answers.base, varied.name)
    recorded = [len(step.committed) for step in answers.trace.steps]
    lines: dict[str, list[Point]] = {}
    for point in answers.points:
        outcome = answers.outcomes.get(point.config)
        if point.sweep == varied.name and outcome is not None:
            found = length_difference(recorded, outcome.committed)
            lines.setdefault(point.lane, []).append(
                Point(
                    known.index(point.value),
                    outcome.mean_acceptance_length,
                    outcome.nodes_per_step,
                    found.b.low,
                    found.b.high,
                    found.difference.low,
                    found.difference.high,
                    {name: gain for name, m in MACHINES.items() if (gain := outcome.speedup(m)) is not None},
                )
            )
    return Sweep(
        varied.symbol,
        varied.label,
        tuple("all" if v is None else str(v) for v in known),
        known.index(own) if own in known and varied.name in METHODS[answers.base.method].settings else None,
        tuple(
            Line(lane, varied.name not in METHODS[method_of(lane)].settings, tuple(dots))
            for lane, dots in lines.items()
        ),
    )


@cache
def recorded_answers() -> str | None:
    """Returns the panel's initial value, which was recorded with the race; None if it was not recorded."""
    answers = stored().get("whatif")
    return msgspec.convert(answers, WhatIfResults).value() if answers else None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The components that change with a new race."""

    source: gr.Dropdown
    charts: View
    notice: gr.Textbox

    @property
    def outputs(self) -> list[Any]:
        return [self.source, self.charts, self.notice]

    def about(self, race: Race | None) -> list[Any]:
        """Returns the updates for a new race: its runs as choices, and no answers. Without a race, nothing changes."""
        if race is None:
            return [gr.skip(), gr.skip(), gr.skip()]
        sampled = any(recorded_config(lane.trace).temperature for lane in race.lanes)
        return [gr.Dropdown(**lane_choices(race)), None, sentence(note=NOT_GREEDY if sampled else "")]


def build_whatif(session: gr.State, chosen: list[Component]) -> WhatIf:
    """Lay out the panel and wire it.

    session: the session of Explore, which stores the race.
    chosen: controls of the models, for runs that do not name a preset.
    """
    gr.Markdown(EXPLANATION, elem_id="whatif-explained")
    with gr.Row(elem_id="whatif-settings"):
        source = gr.Dropdown(
            **lane_choices(recorded_race()), label="Recorded run", elem_id="whatif-source", scale=1, min_width=150
        )
        sweeps = gr.CheckboxGroup(
            [(s.label[:1].upper() + s.label[1:], s.name) for s in SWEEPS.values()],
            value=list(SWEEPS),
            label="Vary",
            elem_id="whatif-sweeps",
            scale=1,
            min_width=150,
        )
        methods = gr.CheckboxGroup(
            [(name, lane) for group in grouped(LANES).values() for lane, name in group.items()],
            value=[m for m in DEFAULT_LANES[1:] if m in METHODS],
            label="Methods",
            elem_id="whatif-methods",
            scale=4,
            min_width=260,
        )
        with gr.Column(scale=0, min_width=110):
            go = gr.Button("Ask", variant="primary", elem_id="ask")
            stop = gr.Button("Stop", elem_id="stop-asking", visible=False)
    notice = notice_box("whatif-notice")
    sheets = ("race/whatif.css",)
    charts = drawn_view(recorded_answers(), "race/whatif.js", constants=FIGURES, sheets=sheets, elem_id="whatif")

    def ask(job: Job, wanted: str, explored: Session, *values: Any) -> Iterator[Update[str]]:
        title, trace = _trace(explored.history.race or recorded_race(), wanted, explored.shown)
        for update in run_sweeps(job, title, trace, Chosen.read(*values[:3]), *values[3:]):
            yield update.map(lambda answers: results(answers).value())

    wire(go.click, ask, gr.State(Ticket()), [source, session, *chosen, sweeps, methods], [charts], notice, stop=stop)
    return WhatIf(source, charts, notice)


def run_name(lane: str) -> str:
    return f"Race: {lane_name(lane)}"


def lane_choices(race: Race) -> dict[str, Any]:
    lanes = [trace_lane(lane.trace) for lane in race.lanes]
    first = FAVOURITE if FAVOURITE in lanes else lanes[0] if lanes else EXPLORE
    return {"choices": [*((run_name(m), m) for m in lanes), (EXPLORE, EXPLORE)], "value": first}


def _trace(race: Race, chosen: str, shown: RecordedRun) -> tuple[str, Trace | None]:
    """Returns name and trace of the chosen run; ``shown``: the run in Explore."""
    if chosen == EXPLORE:
        return EXPLORE, shown.trace() if len(shown) else None
    lanes = {trace_lane(lane.trace): lane.trace for lane in race.lanes}
    return run_name(chosen), lanes.get(chosen)
