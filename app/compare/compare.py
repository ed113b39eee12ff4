"""What Compare computes: two runs or two sets of runs against each other, and a set replayed with another drafter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from app import models
from app.jobs import Job, Update
from app.machine import on_gpu
from app.methods import run_title
from app.models import Chosen
from app.runs.recordings import RunSet
from app.runs.view import about
from app.session import History
from app.streaming import announce_loading
from d2sd import InputError, Trace
from d2sd.calibration import Gathering
from d2sd.calibration.comparison import align, lead_of, text_of
from d2sd.calibration.replays import compare_replays, how_replayed, lines
from d2sd.figures.comparison import comparison_results
from d2sd.trace.metrics import verdict
from d2sd.trace.text import encodable
from d2sd.whatif import Outcome, replayed

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
                "differ": [found.step_a, found.step_b],
                "leads": ["" if found.by_tokens else encodable(lead_of(trace)) for trace in traces],
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
            [[encodable(c.text), c.proposer] for c in step.committed],
            verdict(step) or "",
            -1 if step.actual_boundary is None else step.actual_boundary,
        ]
        for step, end in zip(trace.steps, ends, strict=True)
    ]


def replay(job: Job, texts: RunSet, chosen: Chosen) -> Iterator[Update[str]]:
    """Replay the recorded texts of a set with another drafter, without decoding them again.

    Yields progress, then the table as plain text: as recorded, and with the drafters of ``chosen``.

    A text that ended with prefill has no step, so it is left out. Raises ``InputError``.
    """
    traces = [trace for trace in texts.traces if trace.steps]
    if not traces:
        raise InputError("A holds no text with a step; choose another set as A")
    yield from announce_loading(chosen)
    models.engine(chosen)
    found: list[Outcome] = []
    for steps in _replayed(chosen, traces):
        if job.cancelled():
            return
        found.append(steps)
        yield Update(news=f"{len(found)} of {len(traces)} texts …")
    yield Update(table(texts.title, traces, chosen.model, found))


@on_gpu
def _replayed(chosen: Chosen, traces: Sequence[Trace]) -> Iterator[Outcome]:
    for trace in traces:
        yield replayed(models.engine(chosen), trace)


def table(title: str, traces: Sequence[Trace], name: str, found: Sequence[Outcome]) -> str:
    """Returns both drafters' figures as text. found: for every text, the replayed steps of the drafter ``name``."""
    recorded = [tuple(len(step.committed) for step in trace.steps) for trace in traces]
    groups = [trace.domain for trace in traces]
    cut = [bool(trace.steps) and trace.steps[-1].committed[-1].proposer != "target" for trace in traces]
    names = [f"As recorded, {title}", f"With the drafters of {name}"]
    rows = compare_replays(names, [recorded, [o.committed for o in found]], groups, [cut, [o.cut for o in found]])
    return "\n".join([*(line for row in rows for line in lines(row)), how_replayed(rows, len(traces))])
