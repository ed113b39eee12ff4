"""Two runs, or two sets of runs, against each other: a finding, the figures that differ, and the texts with their steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.methods import NAMES, PLAIN, run_title
from app.runs.recordings import RunSet
from d2sd import Trace
from d2sd.calibration import RunStatistics
from d2sd.calibration.comparison import Comparison, Difference
from d2sd.calibration.report import compare_runs
from d2sd.calibration.sentences import COMPARED, how_compared
from d2sd.figures.comparison import method_name, to_reach
from d2sd.methods import unused
from d2sd.trace.metrics import SYMBOLS, recorded_values, verdict, what_differs
from d2sd.trace.text import encodable

MAX_PAIRS = 40
MAX_CHARACTERS = 400_000  # of the prompts and texts of all pairs
TEXTLESS = frozenset({"tokens", "target"})  # entries of ``Trace.missing`` that make a text incomplete
DISTURBED = "The times were not measured cleanly: other work kept this machine busy."
OTHER_MACHINE = "Their times are not compared, since they were measured on different machines."
# Label of each compared figure, and the words for a larger and a smaller value. The page shows the first four at once.
COUNTED, POINTS, RATED = ("more", "fewer"), ("points higher", "points lower"), ("higher", "lower")
ROWS = {
    "tokens": ("Tokens a step", COUNTED),
    "speed": ("Tokens a second", COUNTED),
    "first": ("Right in the first draft", COUNTED),
    "nodes": ("Tokens read a step", COUNTED),
    "hit": ("Boundary found", POINTS),
    "repaired": ("Rescued drafts", POINTS),
    "redraft": ("Tokens of a re-draft", COUNTED),
    "gap": ("Accepted − confidence", POINTS),
    "ece_above_chance": ("ECE above chance", RATED),
}


def pair_drawing(names: Sequence[str], a: RunStatistics, b: RunStatistics, doubt: str = "") -> dict[str, Any]:
    """Returns the finding about two sides and the rows of figures that differ, as JSON-ready data.

    doubt: why the times of the sides are not compared; empty if they are.
    """
    found = compare_runs(a, b)
    tables = [side.counted().table for side in (a, b)]
    paces = [1000 * float(t.seconds.sum()) / len(t) if len(t) and t.seconds.sum() else None for t in tables]
    title, more = finding(found, names, [len(t) for t in tables], paces, a.texts == b.texts, doubt)
    figures = {d.name: d for d in found.figures}
    return {
        "names": list(names),
        "title": title,
        "more": more,
        "differs": what_differs(a.headers, b.headers, unused, method_name),
        "how": how_compared(found),
        "rows": [_row(figures[name], doubt) for name in ROWS if figures[name].difference.value is not None],
        "comparison": asdict(found),
    }


def finding(
    found: Comparison,
    names: Sequence[str],
    steps: Sequence[int],
    paces: Sequence[float | None],
    same_text: bool,
    doubt: str = "",
) -> tuple[str, str]:
    """Returns a title about tokens per step, and a sentence about time. Neither claims more than the intervals support.

    steps: number of steps of each side.
    paces: mean time of a step in milliseconds; None if unknown.
    same_text: whether both sides wrote the same texts, so that their numbers of steps can be compared.
    doubt: why times are not compared; empty if they are.
    """
    figures = {d.name: d for d in found.figures}
    tokens, speed = figures["tokens"].difference, figures["speed"].difference
    ahead = int((tokens.value or 0.0) > 0)  # the side with more tokens per step
    one, other = names[ahead], _inside(names[1 - ahead])
    if tokens.low is None:
        return f"Too few steps to compare {_inside(names[0])} with {_inside(names[1])}.", doubt
    if not tokens.excludes_zero:
        title = f"{names[0]} and {_inside(names[1])}: no clear difference in tokens a step."
    elif same_text:
        title = f"{one} needs {steps[ahead]} steps where {other} needs {steps[1 - ahead]}."
    else:
        title = f"{one} writes {abs(tokens.value or 0.0):.1f} more tokens a step than {other}."
    own, others = paces[ahead], paces[1 - ahead]
    if doubt or own is None or others is None or speed.value is None:
        return title, doubt
    faster = int(speed.value > 0)
    rates = [COMPARED["speed"][1](side.value) for side in (figures["speed"].a, figures["speed"].b)]
    said = f"{rates[faster]} tokens a second instead of {rates[1 - faster]}"
    if not tokens.excludes_zero:
        return title, f"{names[faster]} is faster: {said}." if speed.excludes_zero else "No clear difference in time either."
    takes = f"a step takes {own:.1f} ms instead of {others:.1f}"
    if not speed.excludes_zero:
        return title, f"But {takes}: no clear difference in time."
    if faster == ahead:
        return title, f"It is also faster: {said}, although {takes}." if own > others else f"It is also faster: {said}."
    slower = f"{rates[ahead]} tokens a second instead of {rates[faster]}"
    return title, f"But {takes}, so it is slower: {slower}."


def _inside(name: str) -> str:
    """Returns a name as it is written inside a sentence."""
    return f"{name[:1].lower()}{name[1:]}" if name.startswith(NAMES[PLAIN]) else name


def _row(d: Difference, doubt: str) -> dict[str, Any]:
    label, (more, fewer) = ROWS[d.name]
    _, write, change = COMPARED[d.name]
    low, high = d.difference.low, d.difference.high
    drawn: list[float | None] = []
    if low is None or high is None:
        words = "no interval"
    elif d.name == "speed" and doubt:
        words = "not compared"
    else:
        scaled = to_reach(d.difference)
        ends = [change(abs(end)).lstrip("+") for end in (low, high)]
        drawn = [part or 0.0 for part in (scaled.low, scaled.value, scaled.high)]
        if ends[0] == ends[1]:
            words = f"{ends[0]} {more if low >= 0 else fewer}"
        elif not d.difference.excludes_zero:
            words = f"not clear: {ends[0]} {fewer} to {ends[1]} {more}"
        else:
            words = f"{ends[0]} to {ends[1]} {more}" if low >= 0 else f"{ends[1]} to {ends[0]} {fewer}"
    return {
        "name": label,
        "values": [write(d.a.value), write(d.b.value)],
        "counts": [d.count_a, d.count_b],
        "change": change(d.difference.value),
        "drawn": drawn,
        "clear": bool(drawn) and d.difference.excludes_zero,
        "words": words,
    }


def side_names(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Returns short names of two sides, from the headers of their runs: the methods, with the first setting or model that differs."""
    titles = [" or ".join(dict.fromkeys(map(run_title, side))) for side in (a, b)]
    if titles[0] != titles[1]:
        return titles[0], titles[1]
    for field in ("config", "models"):
        of_a, of_b = (recorded_values(side, field) for side in (a, b))
        for name in of_a.keys() | of_b.keys():
            values = [of.get(name, "default")[:30] for of in (of_a, of_b)]
            if values[0] != values[1] and (name in SYMBOLS or field == "models"):
                first, second = (f"{titles[0]}, {SYMBOLS.get(name, name.replace('_', ' '))} {v}" for v in values)
                return first, second
    return f"{titles[0]}, first", f"{titles[0]}, second"


def same_machine(*sides: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether all runs were measured on the same hardware, so that their times can be compared."""
    return len({str(header.get("hardware")) for side in sides for header in side}) <= 1


def side_of(trace: Trace) -> dict[str, Any]:
    """Returns a run for the page: the tokens of prefill, and for each step its end in seconds since the prompt was read, its tokens
    with their proposers, its ``verdict``, and the accepted length of the first draft (−1: unknown)."""
    textless = bool(TEXTLESS.intersection(trace.missing))

    def tokens(committed: Sequence[Any]) -> list[list[str]]:
        return [[encodable(c.text), c.proposer] for c in committed]

    return {
        "lead": tokens(trace.prefill.committed) if trace.prefill else [],
        "textless": textless,
        "steps": [
            [
                round(step.elapsed, 6),
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
        traces = a.traces[at[0]], b.traces[at[1]]
        prompt = traces[0].prompt
        size += len(prompt) + sum(len(c.text) for trace in traces for step in trace.steps for c in step.committed)
        if number and size > MAX_CHARACTERS:
            return
        asked = bool(traces[0].header["config"].get("chat"))
        yield {"prompt": encodable(prompt), "chat": asked, "runs": at, "sides": [side_of(trace) for trace in traces]}
