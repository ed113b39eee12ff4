"""Entries whose times are calculated from a table of stage costs, as on another machine, instead of measured."""

from __future__ import annotations

from collections.abc import Sequence

from d2sd.bench.runner import Entry, Run, elsewhere
from d2sd.bench.settings import BenchSetting
from d2sd.config import DecodeConfig
from d2sd.costs.machines import Machine
from d2sd.decoding.cost_aware import Experience
from d2sd.engine import Engine
from d2sd.whatif import Replay


class Calculator:
    """Replays settings over the texts of plain decoding (``d2sd.whatif``), with the times of a cost table.

    base: settings of the texts, at temperature 0. Cost-aware settings also use the table, and keep their statistics from text to
        text, as in an engine.
    """

    def __init__(self, engine: Engine, base: DecodeConfig, costs: Machine):
        self._engine, self._base, self._costs = engine, base, costs
        self._ids: tuple[int, ...] = ()
        self._replay: Replay | None = None  # of the last prompt, None if its text had no cycle

    def entry(self, setting: BenchSetting) -> Entry:
        """Returns a setting as an entry."""
        config, experience = setting.config, Experience(self._costs.of(setting.config.method))

        def run(ids: Sequence[int]) -> Run:
            replay = self._written(tuple(ids))
            if replay is None:
                return Run((), 0, 0, 0.0, 0.0)
            (outcome,) = replay.run([config], self._costs, experience)
            assert outcome.seconds is not None
            return Run(
                token_ids=tuple(replay.output),
                cycle_tokens=sum(outcome.committed),
                steps=len(outcome.committed),
                seconds=outcome.seconds,
                wall_seconds=outcome.seconds,
                nodes=sum(outcome.nodes),
                elsewhere=elsewhere(config.method, outcome.works),
                boundary_hits=(sum(outcome.hits), len(outcome.hits)),
            )

        return Entry(setting.label, config.method, config, run=run)

    def _written(self, ids: tuple[int, ...]) -> Replay | None:
        """Returns plain decoding's output after a prompt, ready to be replayed."""
        if ids != self._ids:
            trace = self._engine.generate(ids, self._base)
            self._ids, self._replay = ids, Replay(self._engine, trace) if trace.steps else None
        return self._replay
