"""Two runs, or two sets of runs, against each other: a finding, the figures that differ, and the texts with their steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.methods import NAMES, run_title
from app.runs.recordings import RunSet
from d2sd import Trace
from d2sd.calibration import RunStatistics
from d2sd.calibration.comparison import Difference
from d2sd.calibration.sentences import COMPARED, compare_sides, difference_words
from d2sd.methods import unused
from d2sd.trace.metrics import IGNORED, SYMBOLS, recorded_values, verdict, what_differs
from d2sd.trace.text import encodable

MAX_PAIRS = 40
MAX_CHARACTERS = 400_000  # of the prompts and texts of all pairs
TEXTLESS = frozenset({"tokens", "target"})  # entries of ``Trace.missing`` that make a text incomplete
DISTURBED = "The times were not measured cleanly: other work kept this machine busy."
OTHER_MACHINE = "Their times are not compared, since they may be from different machines."


def pair_drawing(names: Sequence[str], a: RunStatistics, b: RunStatistics, doubt: str = "") -> dict[str, Any]:
    """Returns the finding about two sides, and a row for each figure that is known, as data for JSON.

    doubt: why the times of the sides are not compared; empty if they are compared.
    """
    compared = compare_sides(a, b, names, doubt)
    figures = {d.name: d for d in compared.comparison.figures}
    rows = [_row(figures[name], doubt) for name in COMPARED if figures[name].difference.value is not None]
    differs = what_differs(a.headers, b.headers, unused, lambda method: NAMES.get(method, method))
    return {"names": list(names), "rows": rows, "differs": differs, **asdict(compared)}


def _row(d: Difference, doubt: str) -> dict[str, Any]:
    """Returns one row of the table for the page. ``drawn``: value and both ends of the difference; empty without an interval."""
    label, write, change, _ = COMPARED[d.name]
    doubted = bool(doubt) and d.name == "speed"
    return {
        "name": label,
        "values": [write(d.a.value), write(d.b.value)],
        "counts": [d.count_a, d.count_b],
        "change": change(d.difference.value),
        "drawn": []
        if d.difference.low is None or doubted
        else [d.difference.low, d.difference.value, d.difference.high],
        "clear": d.difference.excludes_zero and not doubted,
        "words": "not compared" if doubted else difference_words(d),
    }


def side_names(sides: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Returns short names of sides, from the headers of their runs.

    A name is the method. If methods are equal, a setting or model that differs is added, or else a number.
    """
    titles = [" or ".join(dict.fromkeys(map(run_title, side))) for side in sides]
    named = [titles]
    ignored = IGNORED.union(*(unused(str(header.get("method"))) for side in sides for header in side))
    for field in ("config", "models"):
        values_of_sides = [recorded_values(side, field) for side in sides]
        for name in dict.fromkeys(name for values in values_of_sides for name in values if name not in ignored):
            label = SYMBOLS.get(name, name.replace("_", " "))
            said = [f"{label} {of[name][:30]}" if name in of else f"no {label}" for of in values_of_sides]
            named.append([f"{title}, {words}" for title, words in zip(titles, said, strict=True)])
    numbered = [f"{title}, {number}" for number, title in enumerate(titles, 1)]
    return next((names for names in named if len(set(names)) == len(names)), numbered)


def same_machine(*sides: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether all runs are known to be measured on the same hardware, so that their times can be compared."""
    recorded = [header.get("hardware") for side in sides for header in side]
    return all(recorded) and len({str({**hardware, "dtype": None}) for hardware in recorded if hardware}) == 1


def side_of(trace: Trace) -> dict[str, Any]:
    """Returns a run for the page: the tokens of prefill, and a list for each step.

    The list of a step contains its end in seconds after prefill (0: unknown), its tokens with their proposers, its ``verdict``,
    and the accepted length of the first draft (−1: unknown).
    """
    textless, timed = bool(TEXTLESS.intersection(trace.missing)), "times" not in trace.missing

    def tokens(committed: Sequence[Any]) -> list[list[str]]:
        return [[encodable(c.text), c.proposer] for c in committed]

    return {
        "lead": tokens(trace.prefill.committed) if trace.prefill else [],
        "textless": textless,
        "steps": [
            [
                round(step.elapsed, 6) if timed else 0,
                tokens(step.committed),
                verdict(step) or "",
                -1 if step.actual_boundary is None else step.actual_boundary,
            ]
            for step in trace.steps
        ],
    }


def partners(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the indices of runs of two sides with the same prompt, as pairs. Two single runs are always a pair."""
    if len(a) == len(b) == 1:
        return [(0, 0)]
    places = {prompt: n for n, prompt in reversed(list(enumerate(b)))}
    return [(n, places[prompt]) for n, prompt in enumerate(a) if prompt in places][:MAX_PAIRS]


def side_by_side(a: RunSet, b: RunSet) -> Iterator[dict[str, Any]]:
    """Yields, for each common prompt, the runs of both sides."""
    size = 0
    for number, at in enumerate(partners(a.prompts, b.prompts)):
        runs = [side.runs[n].run for side, n in zip((a, b), at, strict=True)]
        traces = [run.trace() for run in runs]
        prompt = traces[0].prompt
        size += len(prompt) + sum(len(c.text) for trace in traces for step in trace.steps for c in step.committed)
        if number and size > MAX_CHARACTERS:
            return
        yield {
            "prompt": encodable(prompt),
            "chat": bool(traces[0].header["config"].get("chat")),
            "keys": [run.key for run in runs],
            "sides": list(map(side_of, traces)),
        }
