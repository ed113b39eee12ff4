"""What would other settings have done? Sweeps over one setting at a time, answered from a recorded greedy run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import d2sd
from app import models
from app.explore import failure_sentence
from app.gpu import on_gpu
from app.models import Chosen
from app.session import Session
from app.update import Update
from d2sd import METHODS, DecodeConfig, Engine, InputError, Trace
from d2sd.whatif import Outcome, Replay, recorded_config

Value = int | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """A setting that is varied. ``name``: the field of ``DecodeConfig``."""

    name: str
    symbol: str
    label: str
    values: tuple[int, ...]


SWEEPS = {
    s.name: s
    for s in (
        Sweep("num_branches", "K", "branches K", (1, 2, 4, 6, 8, 12)),
        Sweep("block_size", "γ", "block size γ", (4, 6, 8, 10, 12, 16)),
        Sweep("draft_depth", "d", "draft depth d", (1, 2, 3, 5, 7)),
        Sweep("node_budget", "B", "node budget B", (8, 16, 32, 64, 128)),
    )
}


@dataclass(frozen=True, slots=True)
class Question:
    """One point: ``value`` of the sweep's setting (None: no node budget) for ``method``, as a resolved ``config``."""

    sweep: str
    method: str
    value: Value
    config: DecodeConfig


@dataclass(frozen=True, slots=True)
class Answers:
    """Questions about a run and the outcomes so far, by resolved settings. ``base``: the run's own settings;
    ``recorded``: it was asked earlier, when the page was made."""

    source: str
    trace: Trace
    base: DecodeConfig
    questions: tuple[Question, ...]
    outcomes: dict[DecodeConfig, Outcome] = field(default_factory=dict)
    status: str = ""
    recorded: bool = False


def run(
    session: Session,
    number: int,
    source: str,
    trace: Trace | None,
    chosen: Chosen,
    sweeps: Sequence[str],
    methods: Sequence[str],
) -> Iterator[Update[Answers]]:
    """Answer point by point, methods left out that these models have no drafter for.

    ``source``: what the run is called on the page; ``chosen``: its models where the trace does not name bundled ones. On bad
    input the answers that are shown stay.
    """

    def stale() -> bool:
        return session.newest != number

    if not session.claim(number):
        return
    try:
        if trace is None:
            raise InputError("there is no run to ask; run something first")
        base = recorded_config(trace)
        if base.temperature != 0:
            raise InputError("what-if needs a run at temperature 0: only then is the text the same for every setting")
        named = trace.header.get("models")
        preset = named.get("preset") if isinstance(named, dict) else None
        which = Chosen(preset) if preset in d2sd.presets() else chosen
        engine = models.engine(which)
        missing = {method: reason for method in methods if (reason := engine.obstacle(method))}
        able = [method for method in methods if method not in missing]
        if methods and not able:
            raise InputError(missing[methods[0]])
        asked = questions(engine, base, sweeps, able)
        if not asked:
            raise InputError("nothing is asked; tick at least one setting and one method")
        yield Update(news="Reading the recorded text …")
        answers = Answers(source, trace, base, asked)
        configs = list(dict.fromkeys(q.config for q in asked))
        outcomes = _outcomes(which, trace, configs)
        for count, config in enumerate(configs, 1):
            if stale():
                break
            yield Update(replace(answers, status=f"{count} of {len(configs)}: {config.method} …"))
            answers = replace(answers, outcomes={**answers.outcomes, config: next(outcomes)})
        yield Update(answers, news=" ".join(f"Left out: {reason}." for reason in missing.values()))
    except InputError as error:
        yield Update(problem=f"{error}")
    except Exception as error:  # as in Explore
        yield Update(problem=failure_sentence(error))


@on_gpu
def _outcomes(chosen: Chosen, trace: Trace, configs: Sequence[DecodeConfig]) -> Iterator[Outcome]:
    yield from Replay(models.engine(chosen), trace).run(configs)


def questions(
    engine: Engine, base: DecodeConfig, sweeps: Sequence[str], methods: Sequence[str]
) -> tuple[Question, ...]:
    """All points of the sweeps that these models can run, the run's own value among them.

    A method that does not use a setting has the same settings at all its values, so it is answered once. Raises
    ``InputError`` for a method that these models cannot run at all.
    """
    out = []
    for method in (m for m in METHODS if m in methods):
        own = replace(
            base,
            method=method,
            # γ₂ follows γ unless the run had set it apart; nodes are counted, so their price here plays no part
            second_block_size=None if base.second_block_size == base.block_size else base.second_block_size,
            cost_aware=False,
            backend="auto",
            inspect=False,
        )
        plain = engine.resolve(own)
        for sweep in (s for s in SWEEPS.values() if s.name in sweeps):
            for value in values(sweep, base):
                if sweep.name not in METHODS[method].settings:
                    out.append(Question(sweep.name, method, value, plain))
                    continue
                if value is None and METHODS[method].default_budget:
                    continue
                try:
                    varied: dict[str, Any] = {sweep.name: value}
                    config = engine.resolve(replace(own, **varied))
                except InputError:  # it does not fit the other settings, such as K = 12 a block of 8
                    continue
                out.append(Question(sweep.name, method, value, config))
    return tuple(out)


def values(sweep: Sweep, base: DecodeConfig) -> list[Value]:
    """The values of a sweep in order, with the run's own; no node budget comes last."""
    own: Value = getattr(base, sweep.name)
    known = sorted({*sweep.values, *([] if own is None else [own])})
    return [*known, None] if sweep.name == "node_budget" else [*known]
