"""Measures the gain of perfect confidence by replaying recorded runs with other prefixes to re-draft from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from d2sd.calibration.replays import DrafterFigures, compare_replays
from d2sd.calibration.sentences import count, decimal, signed_decimal, with_interval
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.trace.trace import Trace
from d2sd.whatif import Replay, ReplayOutcome, recorded_config

HEAD = "| second drafts start | tokens per step | difference |\n| --- | ---: | ---: |\n"


def replay_selections(engine: Engine, trace: Trace) -> list[ReplayOutcome]:
    """Returns the outcomes of D²SD over a recorded greedy run with three choices of prefixes.

    These are the K likeliest prefixes, K random ones, and the true boundary of each first draft. Raises ``InputError`` for a run
    without K, or a run that cannot be replayed.
    """
    recorded = replace(recorded_config(trace), inspect=False, backend="auto", cost_aware=False)
    if not recorded.num_branches or any(step.first_draft is None for step in trace.steps):
        raise InputError("these runs did not select prefixes; measure with a method such as D²SD")
    chosen, random = (engine.resolve(replace(recorded, method=method)) for method in ("d2sd", "random_prefix"))
    replay = Replay(engine, trace)
    return [*replay.run([chosen, random]), replay.at_boundary(chosen)]


def selections_report(texts: Sequence[Sequence[ReplayOutcome]]) -> str:
    """Returns Markdown about the outcomes of ``replay_selections`` of every text."""
    k = texts[0][0].config.num_branches
    names = [f"at the {k} likeliest prefixes", f"at {k} random prefixes", "once, at the true boundary"]
    rows = compare_replays(
        names,
        [[text[n].committed for text in texts] for n in range(len(names))],
        [""] * len(texts),
        [[text[n].cut for text in texts] for n in range(len(names))],
    )
    table = "".join(map(_row, rows))
    return (
        f"# What would perfect confidence bring?\n\n{_sentence(rows[2], k)} The replays cover {count(len(texts), 'text')} with "
        f"the same drafters. At temperature 0, a replay gives exactly the steps that decoding would give.\n\n{HEAD}{table}\n"
        "The difference is to the first row, with simultaneous 95% intervals over texts."
    )


def _row(row: DrafterFigures) -> str:
    difference = row.whole.difference
    words = "" if difference is None else with_interval(difference, signed_decimal)
    return f"| {row.name} | {with_interval(row.whole.alpha, decimal)} | {words} |\n"


def _sentence(known: DrafterFigures, k: int) -> str:
    difference = known.whole.difference
    if difference is None or difference.value is None or difference.low is None:
        return "There are too few texts for a conclusion."
    words = with_interval(difference, signed_decimal)
    if not difference.excludes_zero:
        return f"No clear difference: if the boundary were known, one re-draft per step would be as good as {k} re-drafts ({words} tokens per step)."
    return f"If the boundary were known, one re-draft per step would change α by {words} tokens per step compared with {k} re-drafts."
