"""Replays a recorded greedy run with many combinations of the number of re-drafts K and the block size γ."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from d2sd.config import DecodeConfig
from d2sd.costs.machines import StageCosts, cost_drawing
from d2sd.costs.runs import recording_machine
from d2sd.engine import Engine
from d2sd.errors import InputError, require
from d2sd.methods import METHODS
from d2sd.replay.outcomes import ReplayOutcome, recorded_config
from d2sd.replay.questions import check_same_weights
from d2sd.replay.recorded import Replay
from d2sd.trace.events import Baseline
from d2sd.trace.trace import Trace

BRANCHES = (0, 1, 2, 4, 6, 8)  # K; 0: the first draft alone
BLOCKS = (4, 6, 8, 12, 16)  # γ


class GridProgress(NamedTuple):
    """Progress of the replays of a run.

    done, total: numbers of replayed settings and of all settings.
    line: result of ``grid_line``; None until all settings are replayed.
    """

    done: int
    total: int
    line: dict[str, Any] | None = None


def settings_grid(engine: Engine, base: DecodeConfig) -> dict[tuple[int, int], DecodeConfig]:
    """Returns the resolved settings of each combination (K, γ) that the models allow.

    base: settings of the run. Its K and γ are among the combinations. If its method has no K, all combinations have K = 0.

    Raises ``InputError`` if K and γ do not determine the drafts of this run.
    """
    method = METHODS[base.method]
    require(
        base.temperature == 0,
        "other K and γ need a run at temperature 0: only then is the text the same for every setting",
    )
    require(
        not base.cost_aware and "block_size" in method.settings,
        "the settings K and γ do not determine the drafts of this run",
    )
    several = "num_branches" in method.settings
    branches = sorted({*BRANCHES, base.num_branches}) if several else [0]
    # γ₂ equals γ unless the run set it separately
    second = None if base.second_block_size == base.block_size else base.second_block_size
    configs = {}
    for k, gamma in itertools.product(branches, sorted({*BLOCKS, base.block_size or BLOCKS[-1]})):
        used = "dflash" if several and not k else method.id
        try:
            setting = replace(base, method=used, num_branches=max(1, k), block_size=gamma, second_block_size=second)
            configs[k, gamma] = engine.resolve(setting)
        except InputError:  # K exceeds the number of prefixes, or γ exceeds the drafter's block size
            continue
    return configs


def replay_grid(engine: Engine, trace: Trace, baseline: Baseline | None = None) -> Iterator[GridProgress]:
    """Replays a run with all settings of ``settings_grid``. Real runs with these settings would have exactly the same steps.

    baseline: speeds of plain decoding and of the run, measured on this machine. If it is None, no times are calculated.

    Yields the progress before the first setting, after each setting, and once more with the outcomes. Raises ``InputError`` if the
    run cannot be replayed.
    """
    base = recorded_config(trace)
    configs = settings_grid(engine, base)
    check_same_weights(engine, trace, ("target", "first_drafter", "second_drafter"))
    yield GridProgress(0, len(configs))
    replay, points = Replay(engine, trace), {}
    for setting, config in configs.items():
        points[setting] = replay.run(config)
        yield GridProgress(len(points), len(configs))
    machine = None
    if baseline is not None and not baseline.disturbed:
        table = engine.costs(engine.resolve(replace(base, backend=trace.header["config"].get("backend", "auto"))))
        machine = recording_machine(trace, baseline.tokens_per_second, baseline.unwatched, table)
    yield GridProgress(len(configs), len(configs), grid_line(trace, points, machine))


def grid_line(trace: Trace, points: dict[tuple[int, int], ReplayOutcome], machine: StageCosts | None) -> dict[str, Any]:
    """Returns the outcomes as a line that is added to the run on the page (``d2sd.trace.run``).

    points: outcomes by (K, γ). In the line, an outcome is a list: K, γ, number of tokens of every step, work of every step.
    machine: costs on the machine that recorded the run; None if unknown.
    """
    base = recorded_config(trace)
    branches = base.num_branches if "num_branches" in METHODS[base.method].settings else 0
    return {
        "event": "Replays",
        "run": trace.header["run"],
        "own": [branches, base.block_size],
        "points": [
            [k, gamma, list(outcome.committed), msgspec.to_builtins(outcome.works)]
            for (k, gamma), outcome in points.items()
        ],
        "here": machine and {**cost_drawing(machine), "milliseconds": 1e3 * machine.plain()},
    }
