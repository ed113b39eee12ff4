"""What Compare computes: two runs or two sets of runs against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from app.methods import run_title
from app.runs.recordings import RunSet
from app.runs.view import about
from app.session import History
from d2sd import InputError, Trace
from d2sd.calibration import Gathering
from d2sd.calibration.comparison import align, lead_of, text_of
from d2sd.figures.comparison import comparison_results
from d2sd.trace.metrics import verdict

MAX_PAIRS = 40
MAX_PAIR_CHARACTERS = 400_000  # of all texts that are drawn side by side
MAX_LABEL = 80


def choices(history: History) -> list[tuple[str, str]]:
    """Returns what can be compared: the window's runs and measured sets, as labels and names."""
    sets = [(f"Set: {s.title} ({about(s.runs[0].header)})", f"set {s.title}") for s in history.sets]
    # method and prompt first: a box shows the beginning
    runs = [
        (f"{run_title(k.header)}: {k.label} ({about(k.header)}, {k.source})", f"run {k.run.key}") for k in history.runs
    ]
    return sets + runs


def pick(history: History, name: str | None) -> RunSet:
    """Returns the runs of a choice; raises ``InputError`` if they are gone."""
    kind, _, which = (name or "").partition(" ")
    if kind == "run" and (found := history.find(which)):
        return RunSet(f"{found.label} ({about(found.header)})", (found,), name or "")
    chosen = next((s for s in history.sets if s.title == which), None)
    if kind == "set" and chosen:
        return replace(chosen, title=f"{chosen.title} ({about(chosen.runs[0].header)})", source=name or "")
    raise InputError("choose two runs or sets that are still in the list" if name else "choose what to compare")


def compared(a: RunSet, title: str, b: Gathering) -> dict[str, Any]:
    """Returns figures, differences and reliability of a set and of other runs under this title, ready for JSON."""
    return {"titles": [a.title, title], **comparison_results(a.gathering, b).to_dict()}


def side_by_side(a: RunSet, b: RunSet) -> list[dict[str, Any]]:
    """Returns the texts of both sides, prompt by prompt, with their steps over the same characters."""
    pairs: list[dict[str, Any]] = []
    size = 0
    for left, right in partners(a.prompts, b.prompts):
        traces = a.traces[left], b.traces[right]
        size += sum(len(text_of(step)) for trace in traces for step in trace.steps)
        if pairs and size > MAX_PAIR_CHARACTERS:
            break
        found = align(*traces)
        pairs.append(
            {
                "prompt": " ".join(a.prompts[left].split())[:MAX_LABEL],
                "differs_at": found.differs_at,
                "parts_at": found.parts_at,
                "by_tokens": found.by_tokens,
                "runs": [left, right],
                "leads": ["" if found.by_tokens else _clean(lead_of(trace)) for trace in traces],
                "sides": [_steps(*side) for side in zip(traces, (found.ends_a, found.ends_b), strict=True)],
            }
        )
    return pairs


def partners(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Returns pairs of runs of the same prompt from both sides; two single runs in any case."""
    if len(a) == len(b) == 1:
        return [(0, 0)]
    places = {prompt: n for n, prompt in reversed(list(enumerate(b)))}
    found = [(n, places[prompt]) for n, prompt in enumerate(a) if prompt in places]
    return found[:MAX_PAIRS]


def _steps(trace: Trace, ends: Sequence[int]) -> list[list[Any]]:
    """Per step: its end in characters, its tokens with their proposers, its ``verdict``, and
    how much of the first draft was accepted (−1: not seen)."""
    return [
        [
            end,
            [[_clean(c.text), c.proposer] for c in step.committed],
            verdict(step) or "",
            -1 if step.actual_boundary is None else step.actual_boundary,
        ]
        for step, end in zip(trace.steps, ends, strict=True)
    ]


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
