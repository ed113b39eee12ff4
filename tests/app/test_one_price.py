"""The cost of a run on another machine is the same in why?, Race, Learn and What if."""

from __future__ import annotations

import json

import pytest

from app.race import tab as race_tab
from app.race.run import Lane, Race
from d2sd import DecodeConfig
from d2sd.costs.machines import MACHINES
from d2sd.trace.run import RecordedRun
from d2sd.whatif import Replay
from tests.scripts.node import run_script
from tools import record, write_constants

PRICES = """
import { meanCost, readWork } from "HOME/assets/viewer/machine.js";
import { MEASURED, PAPER } from "HOME/assets/viewer/constants.js";
import { mapPoints } from "HOME/app/race/results.js";
import { readLane } from "HOME/app/race/replay.js";
import { costOf } from "HOME/app/learn/settings.js";
const works = data.works.map(readWork);
const [k, , , point] = data.point;
const prices = (machine) => [meanCost(machine, data.header.method, works), costOf({ k, works: point.map(readWork) }, machine, data.header.method) / works.length];
console.log(JSON.stringify({ paper: prices(PAPER), "h200-measured": prices(MEASURED), race: mapPoints([readLane(data.lane)])[0].there }));
"""


@pytest.mark.parametrize("method", ["dflash", "d2sd", "dflash_twice", "d2sd_three_level", "d2sd_tree"])
def test_run_price_is_equal_in_all_views(engine, method):
    config = engine.resolve(DecodeConfig(method, 40))
    trace = engine.generate("the cat sat", config)
    lines = map(json.loads, RecordedRun.of(trace.records()).lines(outcomes=True))
    works = [line["work"] for line in lines if line["event"] == "Outcome"]
    drawn = json.loads(race_tab.race_drawing(Race("the cat sat", (method,), (Lane(trace),))))
    (outcome,) = Replay(engine, trace).run([config])
    points = [record.SettingsPoint(4, config.block_size, outcome.committed, outcome.works)]
    point = record.live_data(trace, points)["points"][0]
    lane = drawn["lanes"][0]
    on_the_page = run_script(PRICES, {"header": trace.header, "works": works, "lane": lane, "point": point})
    tokens = sum(outcome.committed)
    for name, machine in MACHINES.items():
        price = machine.plain_steps(method, outcome.works)
        assert on_the_page[name] == pytest.approx([price / len(works)] * 2, rel=1e-4)
        assert outcome.speedup(machine) == pytest.approx(tokens / price)
    assert on_the_page["race"] == pytest.approx(MACHINES["paper"].plain_steps(method, outcome.works) / len(works))


def test_script_constants_match_python():
    """``python -m tools.write_constants`` updates the script."""
    assert write_constants.PATH.read_text(encoding="utf-8") == write_constants.source()
