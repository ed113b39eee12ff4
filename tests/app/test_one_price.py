"""The cost of a run on another machine is the same in *When does it pay?*, Race, replays and Python."""

from __future__ import annotations

import json

import pytest

from app.race import tab as race_tab
from app.race.run import Lane, Race
from d2sd import DecodeConfig
from d2sd.costs.machines import MACHINES
from d2sd.replay.grid import grid_line
from d2sd.replay.recorded import Replay
from d2sd.trace.run import RecordedRun
from tests.scripts.node import run_script
from tools import write_constants

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
def test_run_price_is_equal_in_all_views(engines, method):
    engine = engines("llama")
    config = engine.resolve(DecodeConfig(method, 40))
    trace = engine.generate("the cat sat", config)
    lines = map(json.loads, RecordedRun.of(trace.records()).lines(outcomes=True))
    works = [line["work"] for line in lines if line["event"] == "Outcome"]
    drawn = json.loads(race_tab.race_drawing(Race("the cat sat", (method,), (Lane(trace),))))
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
