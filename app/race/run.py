"""Races: several methods decode one prompt with one seed, one after the other so that they do not slow each other down."""

from __future__ import annotations

import gzip
import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from app import models, settings
from app.jobs import Job, Update, failure_sentence
from app.links import check_length
from app.methods import LANES, PLAIN, lane_of, lane_title, method_of, run_lane
from app.plain import PlainStep
from app.presets import TRACES
from app.race.pair import same_machine
from app.runs.recordings import Recording
from app.streaming import Pacer, Prepared, RunRequest, announce_loading, prepare_run, stream, warm_up
from d2sd import DecodeConfig, Event, InputError, StepDone, Trace
from d2sd.calibration.comparison import first_difference
from d2sd.costs.machines import h200
from d2sd.costs.runs import ThreadShare, impossible, mean_cost
from d2sd.errors import require
from d2sd.nets.dtypes import NEAR_TIES, SIXTEEN_BITS
from d2sd.trace.events import Baseline
from d2sd.trace.metrics import Totals
from d2sd.trace.run import RecordedRun
from d2sd.trace.trace import parse_trace

RECORDED = TRACES / "race.json.gz"


@dataclass(frozen=True, slots=True)
class Lane:
    """The run of one method.

    problem: why the run failed; empty if it did not fail.
    slowed: whether other programs took processor time from the run's thread (``d2sd.costs.runs.ThreadShare``).
    kept: the run of the list that the lane shows; None in a race.
    """

    trace: Trace
    problem: str = ""
    slowed: bool = False
    kept: Recording | None = None

    @property
    def complete(self) -> bool:
        return self.trace.finished is not None and self.trace.finished.stop_reason != "stopped"


@dataclass(frozen=True, slots=True)
class Race:
    """One prompt through several methods.

    methods: names of the lanes, in the order in which they run.
    lanes: the runs so far.
    status: progress as a sentence; empty at the end.
    recorded: whether it is a stored race, possibly from another machine.
    names: names of the lanes if these are runs of the list instead of a race; else empty.
    config: the requested settings, without the defaults that the engine fills in for each method.
    """

    methods: tuple[str, ...]
    lanes: tuple[Lane, ...] = ()
    status: str = ""
    recorded: bool = False
    names: tuple[str, ...] = ()
    config: DecodeConfig = field(default_factory=DecodeConfig)


@dataclass(frozen=True, slots=True)
class LaneFigures:
    """Figures of one lane. Its text is compared with that of a reference lane: plain decoding if complete, else the first complete
    lane.

    speedup: tokens per second relative to plain decoding; None if plain decoding is not complete.
    place: rank by time, 1 for the fastest. None if the lane is not complete, or if the times of any lane are disturbed.
    there: mean cost of a step with an 8B model on an H200, in plain decoding steps; None if unknown.
    disturbed: whether other work disturbed the times of the lane or of plain decoding (``d2sd.costs.runs``).
    identical: whether the lane's text equals the reference's; None if one of the two lanes is not complete.
    differs_at: number of leading tokens that both texts share, if ``identical`` is False; otherwise None.
    """

    method: str
    totals: Totals
    speedup: float | None
    place: int | None
    there: float | None
    disturbed: bool
    identical: bool | None
    differs_at: int | None


@cache
def recorded_race() -> Race:
    """Returns the bundled race, without lanes if its file is missing."""
    if not RECORDED.exists():
        return Race(())
    traces = json.loads(gzip.decompress(RECORDED.read_bytes()))["traces"]
    lanes = tuple(Lane(parse_trace(trace.encode())) for trace in traces)
    methods = tuple(run_lane(lane.trace.header) for lane in lanes)
    return Race(methods, lanes, recorded=True)


def run_race(job: Job, request: RunRequest, methods: Sequence[str]) -> Iterator[Update[Race]]:
    """Yield updates while the methods run one after the other, in the order of ``LANES``.

    Methods without a drafter in these models are left out, with a note. Raises ``InputError`` only before the first update with a
    race. Then, or if the job is cancelled while the models are loaded, the page still shows the previous race.

    methods: names of lanes.
    """
    check_length(request.prompt)
    # these configs record no details for drawing trees, so that only decoding is timed
    configs = [_config(lane, request.settings) for lane in LANES if lane in methods]
    require(configs, "no method is ticked; tick at least one, preferably two")
    yield from announce_loading(request.models)
    reasons = {c.method: models.engine(request.models).obstacle(c.method) for c in configs}
    left_out = [reason for reason in reasons.values() if reason]
    configs = [c for c in configs if not reasons[c.method]]
    if not configs:
        raise InputError(left_out[0])
    runs = [prepare_run(request.models, request.prompt, config) for config in configs]
    if job.cancelled():
        return
    race = Race(tuple(lane_of(c.method, c.cost_aware) for c in configs), config=configs[0])
    for place, prepared in enumerate(runs, 1):
        if job.cancelled():
            break
        lane = yield from _run(job, race, prepared, f"{place} of {len(runs)}: {lane_title(race.methods[place - 1])}")
        race = replace(race, lanes=(*race.lanes, lane))
    for at in disturbed_lanes(race):
        title = f"{lane_title(race.methods[at])} again, because other work on this machine disturbed its times"
        if not job.cancelled() and (lane := (yield from _run(job, race, runs[at], title))).complete:
            race = replace(race, lanes=(*race.lanes[:at], lane, *race.lanes[at + 1 :]))
    notes = [runs[0].warnings(), *(f"Left out: {reason}." for reason in left_out)]
    notes += [NEAR_TIES] if rounded_apart(race) else []
    yield Update(race, note=" ".join(n for n in notes if n))


def _run(job: Job, race: Race, prepared: Prepared, title: str) -> Generator[Update[Race], None, Lane]:
    """Yields progress and returns the lane."""
    warming_up = Update(replace(race, status=f"{title}, warming up …"))
    yield warming_up
    events, tokens, problem = list[Event](), 0, ""
    share, pacer = ThreadShare(), Pacer()
    try:
        for _ in warm_up(prepared, job.cancelled):
            if pacer.due():
                yield warming_up
        with closing(stream(prepared, job.cancelled, share)) as running:
            for event in running:
                events.append(event)
                tokens += len(event.committed) if isinstance(event, StepDone) else 0
                if pacer.due():
                    yield Update(replace(race, status=f"{title}, {tokens} tokens …"))
    except Exception as error:  # the other methods still run
        problem = failure_sentence(error)
    lane = Lane(prepared.trace(events), problem, share.disturbed)
    if prepared.request.config.method == PLAIN and lane.complete and not lane.slowed:
        PlainStep(prepared, job.cancelled).correct([step.seconds for step in lane.trace.steps])
    return lane


def disturbed_lanes(race: Race) -> list[int]:
    """Returns the indices of the lanes to run again: lanes with disturbed times and, if there are any, plain decoding."""
    plain = plain_lane(race)
    disturbed = [at for at, lane in enumerate(race.lanes) if _times_disturbed(lane, plain)]
    return [
        at
        for at, method in enumerate(race.methods[: len(race.lanes)])
        if disturbed and (at in disturbed or method == PLAIN)
    ]


def _times_disturbed(lane: Lane, plain: Lane | None) -> bool:
    def verified(lane: Lane) -> float:
        return lane.trace.totals.stage_seconds["verify"] / max(1, lane.trace.totals.steps)

    return lane.complete and (lane.slowed or bool(plain and impossible(verified(lane), verified(plain))))


def baseline(figures: LaneFigures) -> Baseline | None:
    """Returns the measured speeds of a lane and of plain decoding; None for plain decoding itself, or without its speed."""
    if not figures.speedup or figures.method == PLAIN:
        return None
    speed = figures.totals.tokens_per_second
    return Baseline(speed / figures.speedup, speed, figures.disturbed)


def recorded(lane: Lane, figures: LaneFigures) -> RecordedRun:
    """Returns the run of a lane, with the speeds of the lane and of plain decoding that the race measured."""
    speeds = baseline(figures)
    return RecordedRun.of([*lane.trace.records(), *([speeds] if speeds else [])])


def rounded_apart(race: Race) -> bool:
    """Returns whether rounding may explain different texts: some lanes differ at temperature 0, and the dtype has 16 bits, with
    which rounding decides near ties.
    """
    dtype = race.lanes[0].trace.header["hardware"]["dtype"] if race.lanes else ""
    differs = any(lane.identical is False for lane in lane_figures(race))
    return race.config.temperature == 0 and dtype in SIXTEEN_BITS and differs


def _config(lane: str, values: dict[str, Any]) -> DecodeConfig:
    config = replace(settings.config(method_of(lane), values), inspect=False)
    return config if config.method == lane else replace(config, cost_aware=True, node_budget=None)


def reference(race: Race) -> Lane | None:
    """Returns the complete lane of plain decoding, or else the first complete lane."""
    return plain_lane(race) or next((lane for lane in race.lanes if lane.complete), None)


def plain_lane(race: Race) -> Lane | None:
    """Returns the complete lane of plain decoding, or None."""
    return next((lane for lane in race.lanes if lane.complete and lane.trace.header["method"] == PLAIN), None)


def one_machine(race: Race) -> bool:
    return same_machine([lane.trace.header for lane in race.lanes])


def default_pair(race: Race) -> tuple[int, int] | None:
    """Returns the indices of the two lanes that are compared first, in order; None if fewer than two lanes have steps.

    These are DFlash and D²SD if both have steps; otherwise the two fastest lanes that draft; otherwise the first two lanes with
    steps.
    """
    done = [at for at, lane in enumerate(race.lanes) if lane.trace.steps]
    drafted = [at for at in done if race.methods[at] != PLAIN]
    named = {race.methods[at]: at for at in done}
    fastest = sorted(drafted, key=lambda at: -race.lanes[at].trace.totals.tokens_per_second)[:2]
    chosen = [named["dflash"], named["d2sd"]] if {"dflash", "d2sd"} <= named.keys() else fastest
    chosen = sorted(chosen if len(chosen) == 2 else done[:2])
    return (chosen[0], chosen[1]) if len(chosen) == 2 else None


def lane_figures(race: Race) -> list[LaneFigures]:
    base, plain = reference(race), plain_lane(race) if (same := one_machine(race)) else None
    clean = same and not any(_times_disturbed(lane, plain) for lane in race.lanes)
    order = sorted(lane.trace.totals.seconds for lane in race.lanes if lane.complete and clean)
    return [_figures(lane, base, plain, order) for lane in race.lanes]


def _figures(lane: Lane, base: Lane | None, plain: Lane | None, order: list[float]) -> LaneFigures:
    totals = lane.trace.totals
    rate = plain.trace.totals.tokens_per_second if plain else 0.0  # 0 if unknown, or if the clock is too coarse
    comparable = lane.complete and base is not None
    differs = first_difference(lane.trace.token_ids, base.trace.token_ids) if base and comparable else None
    return LaneFigures(
        method=run_lane(lane.trace.header),
        totals=totals,
        speedup=totals.tokens_per_second / rate if rate and totals.steps else None,
        place=order.index(totals.seconds) + 1 if lane.complete and order else None,
        there=mean_cost(h200(lane.trace.header["method"]), lane.trace),
        disturbed=_times_disturbed(lane, plain) or bool(plain and plain.slowed and lane.complete),
        identical=differs is None if comparable else None,
        differs_at=differs,
    )
