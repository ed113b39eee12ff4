"""Runs that are counted one at a time give the same figures as all runs together."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from msgspec.structs import replace

from d2sd import Trace
from d2sd.__about__ import HOME
from d2sd.calibration import RunStatistics
from d2sd.calibration import report as module
from d2sd.calibration.report import calibrate_steps
from d2sd.calibration.steps import tabulate, tabulate_paths, tabulate_redrafts
from d2sd.trace.trace import read_traces
from tests.unit.steps import made_step, simulated


@pytest.fixture(scope="module")
def recorded_runs():
    """The page's opening run, cut into parts; the first part comes again, as trees without a first draft."""
    (trace,) = read_traces(HOME / "assets" / "traces" / "opening.jsonl.gz")
    parts = [trace.steps[at : at + 9] for at in range(0, len(trace.steps), 9)]
    parts.insert(2, tuple(replace(s, first_draft=None, tempered=()) for s in parts[0]))
    return [Trace({**trace.header, "prompt": f"p{n}"}, None, part, None) for n, part in enumerate(parts)]


def runs():
    """Runs with drafts of several lengths, and an empty run between them."""
    made = [*simulated(5, 6, block=7), [], *simulated(4, 9, seed=2, block=15), [made_step([0.5] * 3, 1)]]
    return [
        Trace({"method": "d2sd", "prompt": f"p{n // 2}", "domain": "ab"[n % 2], "run": str(n)}, None, run, None)
        for n, run in enumerate(made)
    ]


def assert_counted_as_one(traces, at_once, monkeypatch):
    """Checks that runs counted in parts give the figures of one table; returns the statistics."""
    monkeypatch.setattr(module, "BATCH", at_once)
    steps = [t.steps for t in traces]
    table, paths = tabulate(steps, [t.prompt for t in traces]), tabulate_paths(steps)
    redrafts = tabulate_redrafts(steps)
    found = RunStatistics(traces)
    num_branches = traces[0].header.get("config", {}).get("num_branches")
    domains = [t.domain for t in traces]
    assert found.report() == calibrate_steps(table, paths, redrafts, domains, num_branches=num_branches)
    own = found.counted()
    for a, b in ((own.table, table), (own.paths, paths), (own.redrafts, redrafts)):
        for name in b.__dataclass_fields__:
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    return found


@pytest.mark.parametrize("at_once", [1, 10, 1000])
def test_run_statistics_match_calibrate_of_all_runs(monkeypatch, at_once):
    found = assert_counted_as_one(runs(), at_once, monkeypatch)
    assert len(found) == len(runs())
    assert found.headers == [{"method": "d2sd"}]


def test_run_statistics_match_calibrate_for_recorded_trees(monkeypatch, recorded_runs):
    found = assert_counted_as_one(recorded_runs, 8, monkeypatch)
    assert found.report().second is not None
    assert len(found.counted().paths)


def test_run_statistics_release_counted_runs(monkeypatch):
    monkeypatch.setattr(module, "BATCH", 1)

    class Held(list):
        pass

    held = Held(simulated(1, 6)[0])
    seen = weakref.ref(held)
    found = RunStatistics([Trace({"method": "d2sd"}, None, held, None)])
    del held
    gc.collect()
    assert seen() is None
    assert len(found) == 1


def test_compare_runs_pairs_blocks_only_of_texts_in_same_order(recorded_runs):
    own, reordered = RunStatistics(recorded_runs[:2]), RunStatistics(recorded_runs[1::-1])
    assert module.compare_runs(own, own).paired
    assert not module.compare_runs(own, reordered).paired
