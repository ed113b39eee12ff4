"""All places that speak of another machine name one price for one run: why?, Race, Learn, What if, bench."""

from __future__ import annotations

import json
import subprocess

import pytest

from app.learn import live_settings
from app.race import view as race_view
from app.race.lanes import Lane, Race
from d2sd import DecodeConfig
from d2sd.bench.runner import entry
from d2sd.bench.settings import BenchSetting
from d2sd.costs.machines import MACHINES
from d2sd.figures import modules as machines
from d2sd.trace.run import RecordedRun
from d2sd.whatif import Replay
from tests.scripts.test_scripts import NODE

ROOT = machines.VIEWER.parent.parent
PRICES = f"""
import {{ readFileSync }} from "node:fs";
import {{ meanCost }} from "{machines.VIEWER}/machine.js";
import {{ MACHINES }} from "{machines.VIEWER}/machines.js";
import {{ retimed }} from "{ROOT}/app/race/costs.js";
import {{ readLane }} from "{ROOT}/app/race/lane.js";
import {{ costOf }} from "{ROOT}/app/learn/live.js";
import {{ readWork }} from "{ROOT}/assets/viewer/machine.js";
const given = JSON.parse(readFileSync(0, "utf8"));
const works = given.works.map(readWork);
const [k, , , point] = given.point;
console.log(JSON.stringify(Object.fromEntries(MACHINES.map((machine) => {{
  const lane = retimed(readLane(given.lane), machine);
  const unit = machine.milliseconds === null ? 1 : machine.milliseconds / 1000;
  return [machine.id, [meanCost(machine, given.header.method, works) * works.length, lane[lane.length - 1] / unit, costOf({{ k, works: point.map(readWork) }}, machine, given.header.method)]];
}}))));
"""


@pytest.mark.parametrize("method", ["dflash", "d2sd", "dflash_twice", "d2sd_three_level", "d2sd_tree"])
def test_one_run_has_one_price_on_every_machine_everywhere(engine, tmp_path, method):
    config = engine.resolve(DecodeConfig(method, 40))
    trace = engine.generate("the cat sat", config)
    lines = map(json.loads, RecordedRun.of(trace.records()).lines(outcomes=True))
    works = [line["work"] for line in lines if line["event"] == "Outcome"]
    drawn = json.loads(race_view.drawing(Race("the cat sat", (method,), (Lane(trace),))))
    (outcome,) = Replay(engine, trace).run([config])
    points = [live_settings.SettingsPoint(4, config.block_size, outcome.committed, outcome.works)]
    point = live_settings.drawing(trace, points)["points"][0]
    script = tmp_path / "prices.mjs"
    script.write_text(PRICES, encoding="utf-8")
    given = json.dumps({"header": trace.header, "works": works, "lane": drawn["lanes"][0], "point": point})
    options = ["--disable-warning=MODULE_TYPELESS_PACKAGE_JSON"]
    ran = subprocess.run([NODE, *options, script], input=given, capture_output=True, text=True, timeout=60, check=True)
    on_the_page = json.loads(ran.stdout)
    benched = dict(entry(engine, BenchSetting(method, config)).run(engine.request("the cat sat", config).ids).elsewhere)
    tokens = sum(outcome.committed)
    for name, machine in MACHINES.items():
        price = machine.plain_steps(method, outcome.works)
        assert on_the_page[name] == pytest.approx([price] * 3, rel=1e-4)
        assert benched[name] == pytest.approx(price)
        assert outcome.speedup(machine) == pytest.approx(tokens / price)


def test_the_scripts_have_the_machines_of_python():
    """Written anew by ``python -m d2sd.figures.modules``."""
    assert machines.PATH.read_text(encoding="utf-8") == machines.source()
