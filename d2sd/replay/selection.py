"""Measures what a perfect confidence would gain: replays recorded runs with re-drafts from other prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from d2sd.calibration.replays import compare_replays, how_replayed
from d2sd.calibration.resampling import Estimate
from d2sd.calibration.text import count, signed_decimal, with_interval
from d2sd.engine import Engine
from d2sd.errors import require
from d2sd.replay.outcomes import ReplayOutcome, recorded_config
from d2sd.replay.recorded import Replay
from d2sd.trace.trace import Trace

HEAD = "| second drafts start | tokens per step | difference |\n| --- | ---: | ---: |\n"


def replay_selections(engine: Engine, trace: Trace) -> list[ReplayOutcome]:
    """Replays a greedy run of D²SD with three choices of the prefixes to re-draft from, and returns the outcomes.

    The choices are the K likeliest prefixes, K random prefixes, and only the true boundary of each first draft. Raises
    ``InputError`` for a run without K, or a run that cannot be replayed.
    """
    recorded = replace(recorded_config(trace), cost_aware=False)
    require(
        recorded.num_branches and not any(step.first_draft is None for step in trace.steps),
        "these runs did not select prefixes; measure with a method such as D²SD",
    )
    chosen, random = (engine.resolve(replace(recorded, method=method)) for method in ("d2sd", "random_prefix"))
    replay = Replay(engine, trace)
    return [replay.run(chosen), replay.run(random), replay.run(chosen, known_boundary=True)]


def selections_report(texts: Sequence[Sequence[ReplayOutcome]]) -> str:
    """Returns a report in Markdown. texts: for each text, the result of ``replay_selections``."""
    k = texts[0][0].config.num_branches
    names = [f"at the {k} likeliest prefixes", f"at {k} random prefixes", "once, at the true boundary"]
    sides = [[outcome.steps for outcome in side] for side in zip(*texts, strict=True)]
    rows = compare_replays(names, sides, [""] * len(texts), base=0)
    table = "".join(f"| {' | '.join((row.name, *row.whole.words))} |\n" for row in rows)
    return (
        f"# What would perfect confidence bring?\n\n{_sentence(rows[-1].whole.difference, k)} The replays cover {count(len(texts), 'text')} with "
        f"the same drafters. At temperature 0, a replay gives exactly the steps that decoding would give.\n\n{HEAD}{table}\n"
        f"The difference is to the first row. {how_replayed(rows, len(texts))}"
    )


def _sentence(difference: Estimate | None, k: int) -> str:
    if difference is None or difference.low is None:
        return "There are too few texts for a conclusion."
    words = with_interval(difference, signed_decimal)
    if not difference.excludes_zero:
        return f"No clear difference: if the boundary were known, one re-draft per step would be as good as {k} re-drafts ({words} tokens per step)."
    return f"If the boundary were known, one re-draft per step would change α by {words} tokens per step compared with {k} re-drafts."
