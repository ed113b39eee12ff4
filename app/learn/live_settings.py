"""Interactive K and γ at the end of the tour, from replays of one recorded text with every combination."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from d2sd import Engine, InputError, Trace
from d2sd.trace.metrics import Work
from d2sd.whatif import Outcome, Replay, recorded_config

BRANCHES = (0, 1, 2, 4, 6, 8)  # 0: the first draft alone
BLOCKS = (4, 6, 8, 12, 16)


@dataclass(frozen=True, slots=True)
class SettingsPoint:
    """The outcome of one K and γ: tokens and work of every step."""

    num_branches: int
    block_size: int
    committed: tuple[int, ...]
    works: tuple[Work, ...]

    @property
    def alpha(self) -> float:
        """Tokens per step."""
        return sum(self.committed) / len(self.committed)


def replayed(engine: Engine, trace: Trace) -> list[SettingsPoint]:
    """Returns the points of a recorded greedy run: exactly the tokens and nodes of real runs."""
    base = recorded_config(trace)
    configs = {}
    for k, gamma in itertools.product(BRANCHES, BLOCKS):
        try:
            method = base.method if k else "dflash"
            own = replace(base, method=method, num_branches=max(1, k), block_size=gamma)
            own = replace(own, second_block_size=None, node_budget=None, backend="auto", inspect=False)
            configs[k, gamma] = engine.resolve(own)
        except InputError:  # more re-drafts than the block has prefixes, or longer blocks than the drafter knows
            continue
    outcomes: Sequence[Outcome] = list(Replay(engine, trace).run(list(configs.values())))
    return [
        SettingsPoint(k, gamma, outcome.committed, outcome.works)
        for (k, gamma), outcome in zip(configs, outcomes, strict=True)
    ]


def spread(points: Sequence[SettingsPoint]) -> float:
    """Returns the share of steps that K and γ, each alone, can save on this text; the smaller of both.

    Not their number: a text of which little is drafted has many steps.
    """
    longest = max(p.block_size for p in points)
    by_k = [len(p.committed) for p in points if p.block_size == longest]
    by_gamma = [len(p.committed) for p in points if p.num_branches == 2]
    return min(1 - min(steps) / max(steps) for steps in (by_k, by_gamma))


def drawing(trace: Trace, points: Sequence[SettingsPoint]) -> dict[str, Any]:
    """What the page draws: the tokens of the text, the settings and the method of the run, and the points: K, γ, and tokens and
    work (rows of the first draft, of each re-drafting pass, nodes) of every step."""
    config = recorded_config(trace)
    return {
        "prompt": trace.header.get("prompt"),
        "tokens": [c.text for step in trace.steps for c in step.committed],
        "own": [config.num_branches, config.block_size],
        "method": config.method,
        "points": [[p.num_branches, p.block_size, list(p.committed), msgspec.to_builtins(p.works)] for p in points],
    }
