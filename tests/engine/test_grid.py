"""Replays of a run with each K and γ: the settings, and the outcome at the run's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from d2sd import METHODS, DecodeConfig, InputError
from d2sd.replay.grid import replay_grid, settings_grid
from d2sd.trace.events import Baseline


@pytest.mark.parametrize("method", METHODS)
def test_grid_contains_the_run_itself(bundled, method):
    config = bundled.resolve(DecodeConfig(method, 16, block_size=7, num_branches=3, node_budget=9))
    if "block_size" not in METHODS[method].settings:
        with pytest.raises(InputError, match="do not determine"):
            settings_grid(bundled, config)
        return
    trace = bundled.generate("Once upon a time", config)
    *_, last = replay_grid(bundled, trace)
    assert last.done == last.total == len(last.line["points"])
    assert last.line["here"] is None  # without measured speeds
    (own,) = (point for point in last.line["points"] if point[:2] == last.line["own"])
    assert own[2] == [len(step.committed) for step in trace.steps]
    assert [work[2] for work in own[3]] == [len(step.nodes) for step in trace.steps]
    assert {k for k, *_ in last.line["points"]} == ({0, 1, 2, 3, 4, 6, 8} if config.num_branches and own[0] else {0})


def test_grid_keeps_a_longer_second_block(bundled):
    base = bundled.resolve(DecodeConfig("d2sd", block_size=6, second_block_size=8))
    configs = settings_grid(bundled, base)
    assert {config.second_block_size for (k, _), config in configs.items() if k} == {8}
    assert all(gamma <= 8 for k, gamma in configs if k)


def test_grid_has_times_only_for_undisturbed_runs(bundled):
    trace = bundled.generate("Once upon a time", DecodeConfig("d2sd", 8))
    *_, timed = replay_grid(bundled, trace, Baseline(100.0, 200.0))
    *_, disturbed = replay_grid(bundled, trace, Baseline(100.0, 200.0, True))
    assert timed.line["here"]["milliseconds"] == pytest.approx(10)
    assert disturbed.line["here"] is None


def test_grid_refuses_other_weights(bundled):
    trace = bundled.generate("Once upon a time", DecodeConfig("d2sd", 8))
    parts = {**trace.header["parts"], "first_drafter": {"weights": "0"}}
    other = replace(trace, header={**trace.header, "parts": parts})
    with pytest.raises(InputError, match="another first drafter"):
        list(replay_grid(bundled, other))
