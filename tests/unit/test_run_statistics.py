"""Statistics of runs that are added one at a time."""

from __future__ import annotations

import gc
import weakref

import pytest
from msgspec.structs import replace

from d2sd import Trace
from d2sd.__about__ import HOME
from d2sd.calibration import RunStatistics, calibrate
from d2sd.calibration.report import compare_runs
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


def test_run_statistics_are_of_all_runs_added_so_far(recorded_runs):
    """Reports between the runs change nothing; drafts and trees of other shapes may follow."""
    for traces in (runs(), recorded_runs):
        statistics = RunStatistics()
        for trace in traces:
            statistics.report()
            statistics.add(trace)
        assert statistics.report() == calibrate(traces)
        assert len(statistics) == len(traces)
    assert statistics.report().second is not None
    assert len(statistics.counted().verified)
    assert RunStatistics(runs()).headers == [{"method": "d2sd"}]


def test_run_statistics_release_added_runs():
    class Steps(list):
        """Steps to which there can be weak references."""

    held = Steps(simulated(1, 6)[0])
    seen = weakref.ref(held)
    found = RunStatistics([Trace({"method": "d2sd"}, None, held, None)])
    del held
    gc.collect()
    assert seen() is None
    assert len(found) == 1


def test_compare_runs_pairs_blocks_only_of_texts_in_same_order(recorded_runs):
    own, reordered = RunStatistics(recorded_runs[:2]), RunStatistics(recorded_runs[1::-1])
    assert compare_runs(own, own).paired
    assert not compare_runs(own, reordered).paired
