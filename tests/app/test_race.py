"""A race without a browser: order, figures, costs on other machines, stopping, failures."""

from __future__ import annotations

import json
from dataclasses import replace
from unittest.mock import Mock
from urllib.parse import parse_qsl

import pytest
from msgspec import structs

from app import presets
from app.jobs import Job
from app.models import model_set
from app.race import run as race
from app.race.run import RECORDED, Lane, Race, recorded_race
from app.race.tab import FILLED_IN, race_drawing, race_query
from app.streaming import RunRequest, prepare_run
from d2sd import DecodeConfig, Trace
from d2sd.costs.machines import MACHINES
from d2sd.costs.runs import ThreadShare
from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.nets.models import Models
from d2sd.replay.grid import grid_line
from d2sd.replay.recorded import Replay
from d2sd.trace.run import RecordedRun
from tests.app.event import updates_of
from tests.clocks import Ticking
from tests.scripts.node import run_script
from tools import write_constants

VALUES = {
    "block_size": 16, "num_branches": 4, "node_budget": None, "temperature": 0, "seed": 0, "max_new_tokens": 12,
}  # fmt: skip
PROMPT = "One day, a cat"


def asked(prompt=PROMPT, model="tiny", **changes):
    return RunRequest(prompt, model_set(model), "", {**VALUES, **changes})


def run(methods=("d2sd", "autoregressive"), prompt=PROMPT, model="tiny", **changes):
    job = Job()
    return list(updates_of(job, race.run_race(job, asked(prompt, model, **changes), list(methods))))


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch):
    """No other work disturbs these races, however busy the machine is."""
    monkeypatch.setattr(race, "ThreadShare", lambda: ThreadShare(Ticking(1.0), Ticking(1.0)))


@pytest.fixture(scope="module")
def done():
    raced = run()[-1].value
    return replace(raced, lanes=tuple(replace(lane, slowed=False) for lane in raced.lanes))


def test_race_runs_methods_in_order_with_status_and_ends_with_notes(monkeypatch):
    monkeypatch.setattr(Models, "notes", lambda _: ["drafter late reads layer 5"])
    updates = run()
    states = [u.value for u in updates if u.value]
    warming = dict.fromkeys(
        (s.status.split(",")[0], len(s.lanes)) for s in states if "warming" in s.status and "again" not in s.status
    )
    assert [*warming] == [("1 of 2: One by one", 0), ("2 of 2: D²SD", 1)]
    assert (states[-1].status, states[-1].methods) == ("", ("autoregressive", "d2sd"))
    assert [u.note for u in updates if u.note] == ["Drafter late reads layer 5."]


def test_lane_figures_compare_with_plain_decoding_if_present(done):
    plain, branched = race.lane_figures(done)
    assert plain.speedup == 1
    assert plain.totals.mean_acceptance_length == plain.totals.nodes_per_step == 1
    assert branched.identical is True
    assert branched.speedup == pytest.approx(branched.totals.tokens_per_second / plain.totals.tokens_per_second)
    speeds = [
        race.recorded(lane, figures).baseline for lane, figures in zip(done.lanes, (plain, branched), strict=True)
    ]
    assert speeds[0] is None
    assert speeds[1].unwatched / speeds[1].tokens_per_second == pytest.approx(branched.speedup)
    even = replace(done, lanes=tuple(timed(lane, 0.01) for lane in done.lanes))
    assert sorted(lane.place for lane in race.lane_figures(even)) == [1, 2]
    assert sum(branched.totals.stage_seconds.values()) <= branched.totals.seconds
    assert branched.totals.stage_seconds["verify"] > 0
    only = replace(done, methods=done.methods[1:], lanes=done.lanes[1:])
    (alone,) = race.lane_figures(only)
    assert (alone.speedup, alone.identical, json.loads(race_drawing(only))["plain"]) == (None, True, False)


def test_lanes_share_text_and_limit_on_nodes_except_cost_aware_one():
    raced = run(("autoregressive", "d2sd", "ddtree", "d2sd cost-aware"), node_budget=5)[-1].value
    assert all(figures.identical for figures in race.lane_figures(raced))
    traces = {method: lane.trace for method, lane in zip(raced.methods, raced.lanes, strict=True)}
    limits = {
        method: (t.header["config"]["cost_aware"], t.header["config"]["node_budget"]) for method, t in traces.items()
    }
    assert limits.pop("autoregressive")[0] is False
    assert limits == {"d2sd": (False, 5), "ddtree": (False, 5), "d2sd cost-aware": (True, None)}
    assert all(len(step.nodes) <= 6 for method in ("d2sd", "ddtree") for step in traces[method].steps)
    assert "expected to save time" in json.loads(race_drawing(raced))["lanes"][-1]["sentence"]


def test_plain_lane_without_time_gives_no_speedup(done):
    plain, branched = done.lanes
    steps = [structs.replace(step, elapsed=0.0) for step in plain.trace.steps]  # all within one tick of the clock
    timeless = Lane(Trace.of(plain.trace.header, [plain.trace.prefill, *steps, plain.trace.finished]))
    figures = race.lane_figures(replace(done, lanes=(timeless, branched)))
    assert [f.speedup for f in figures] == [None, None]
    assert [race.recorded(lane, f).baseline for lane, f in zip(done.lanes, figures, strict=True)] == [None, None]


def test_opening_run_has_baseline_of_recorded_race():
    opening, recorded = presets.opening(), race.recorded_race()
    at = recorded.methods.index(opening.header["method"])
    assert recorded.lanes[at].trace.token_ids == opening.trace().token_ids
    assert opening.baseline == race.recorded(recorded.lanes[at], race.lane_figures(recorded)[at]).baseline
    assert not race.disturbed_lanes(recorded)


def timed(lane, seconds):
    """Returns the lane with this time for every verification pass."""
    trace = lane.trace
    steps = [structs.replace(s, seconds=structs.replace(s.seconds, verify=seconds)) for s in trace.steps]
    return Lane(Trace.of(trace.header, [trace.prefill, *steps, trace.finished]))


@pytest.mark.parametrize(("slowed", "expected"), [((False, True), [False, True]), ((True, False), [True, True])])
def test_race_lane_is_disturbed_if_its_or_plain_decodings_thread_was(done, slowed, expected):
    lanes = tuple(replace(timed(lane, 0.01), slowed=aside) for lane, aside in zip(done.lanes, slowed, strict=True))
    figures = race.lane_figures(replace(done, lanes=lanes))
    assert [lane.disturbed for lane in figures] == expected
    assert [lane.place for lane in figures] == [None, None]  # a disturbed race has no ranks
    again = race.disturbed_lanes(replace(done, lanes=lanes))
    assert again == ([0, 1] if slowed[1] else [0])  # a clean lane is not run again because plain decoding was disturbed
    assert race.recorded(lanes[1], figures[1]).baseline.disturbed


def test_disturbed_race_lanes_are_run_again(monkeypatch):
    slow, runs = [True], []

    def disturbing(job, running, prepared, title):
        lane = yield from original(job, running, prepared, title)
        runs.append(title)
        return timed(lane, 1.0 if slow and slow.pop() else 0.01)

    original = race._run
    monkeypatch.setattr(race, "_run", disturbing)  # plain decoding comes first and is disturbed
    last = run(["autoregressive", "dflash"])[-1].value
    again = [title.partition(" again")[0] for title in runs[2:]]
    assert again == ["One by one", "DFlash"]
    assert not any(figures.disturbed for figures in race.lane_figures(last))


def test_race_query_holds_requested_settings_only():
    query = dict(parse_qsl(race_query(run(("eagle3", "d2sd_tree"), block_size=8)[-1].value)))
    assert {n: query[n] for n in (*FILLED_IN, "method", "cost_aware") if n in query} == {"block_size": "8"}
    assert (query["model"], query["max_new_tokens"]) == ("tiny", "12")


def test_lane_figures_locate_and_explain_text_difference(done):
    plain, branched = done.lanes
    steps = branched.trace.steps
    first = structs.replace(steps[-1].committed[0], token=steps[-1].committed[0].token + 1)
    changed = structs.replace(steps[-1], committed=(first, *steps[-1].committed[1:]))
    other = Lane(replace(branched.trace, steps=(*steps[:-1], changed)))
    figures = race.lane_figures(replace(done, lanes=(plain, other)))[1]
    assert figures.differs_at == len(branched.trace.prefill.committed) + sum(len(s.committed) for s in steps[:-1])
    header = {**plain.trace.header, "hardware": {**plain.trace.header["hardware"], "dtype": "bfloat16"}}
    rounded = Lane(replace(plain.trace, header=header))
    explained = [
        race.rounded_apart(replace(done, lanes=lanes))
        for lanes in ((rounded, other), (plain, other), (rounded, branched))
    ]
    assert explained == [True, False, False]


def test_race_stop_keeps_finished_lanes():
    job = Job()
    running = race.run_race(job, asked(), ["autoregressive", "dflash", "d2sd"])
    for update in running:
        if update.value and update.value.status.startswith("2 of 3"):
            job.stopped = True
            break
    *_, last = running
    assert [lane.complete for lane in last.value.lanes] == [True, False]
    lanes = json.loads(race_drawing(last.value))["lanes"]
    assert [lane["state"] for lane in lanes] == ["done", "stopped", "not run"]
    assert race.lane_figures(last.value)[1].place is None


def test_race_lane_failure_is_named_and_others_kept(monkeypatch):
    monkeypatch.setattr(BlockDrafter, "draft", Mock(side_effect=MemoryError))
    last = run()[-1].value
    plain, branched = last.lanes
    assert plain.complete
    assert "not enough memory" in branched.problem
    assert json.loads(race_drawing(last))["lanes"][1]["state"] == "broke off"


def test_recorded_race_is_small_and_complete():
    recorded = recorded_race()
    assert RECORDED.stat().st_size < 300_000
    assert recorded.recorded
    assert all(lane.complete for lane in recorded.lanes)
    assert all(row.identical for row in race.lane_figures(recorded))
    assert json.loads(race_drawing(recorded))["machine"]
    assert "node_budget" not in race_query(replace(recorded, lanes=recorded.lanes[1:]))


def test_prepare_limits_block_size_to_drafter():
    prepared = prepare_run(model_set("tiny"), PROMPT, DecodeConfig("d2sd", block_size=32, second_block_size=24))
    assert (prepared.request.config.block_size, prepared.request.config.second_block_size) == (16, 16)
    kept = prepare_run(model_set("tiny"), PROMPT, DecodeConfig("d2sd", block_size=6)).request.config
    assert (kept.block_size, kept.second_block_size) == (6, 6)


PRICES = """
import { h200, meanCost, readWork } from "HOME/assets/viewer/machine.js";
import { MEASURED, PAPER } from "HOME/assets/viewer/constants.js";
import { readReplays } from "HOME/assets/viewer/replays.js";
const { method } = data.header;
const works = data.works.map(readWork);
const [point] = readReplays(data.line, method).points;
const prices = (machine) => [meanCost(machine, method, works), meanCost(machine, point.method, point.works)];
console.log(JSON.stringify({ paper: prices(PAPER), "h200-measured": prices(MEASURED), shown: meanCost(h200(method), method, works) }));
"""


@pytest.mark.parametrize("method", ["dflash", "d2sd", "dflash_twice", "d2sd_three_level", "d2sd_tree"])
def test_run_price_on_other_machines_is_equal_in_race_replays_script_and_python(engine, method):
    config = engine.resolve(DecodeConfig(method, 40))
    trace = engine.generate("the cat sat", config)
    lines = map(json.loads, RecordedRun.of(trace.records()).lines(outcomes=True))
    works = [line["work"] for line in lines if line["event"] == "Outcome"]
    drawn = json.loads(race_drawing(Race((method,), (Lane(trace),))))
    outcome = Replay(engine, trace).run(config)
    line = grid_line(trace, {(4, config.block_size): outcome}, None)
    on_the_page = run_script(PRICES, {"header": trace.header, "works": works, "line": line})
    for name, machine in MACHINES.items():
        price = machine.plain_steps(method, outcome.works)
        assert on_the_page[name] == pytest.approx([price / len(works)] * 2, rel=1e-4)
    assert on_the_page["shown"] == pytest.approx(drawn["lanes"][0]["row"]["there"], rel=1e-4)


def test_script_constants_match_python():
    """``python -m tools.write_constants`` updates the script."""
    assert write_constants.PATH.read_text(encoding="utf-8") == write_constants.source()
