"""Runs settings and baselines ("entries") over prompts. The entries take turns, so that drift of the machine affects all of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from d2sd.bench.prompts import Prompt
from d2sd.bench.settings import BenchSetting
from d2sd.config import DecodeConfig
from d2sd.trace.metrics import boundary_hit

if TYPE_CHECKING:  # imports torch
    from d2sd.engine import Engine

T = TypeVar("T")
Row = dict[str, Any]  # figures by name


@dataclass(frozen=True, slots=True)
class BenchRun:
    """The run of one entry on one prompt. If the prompt was run several times, times are medians.

    token_ids: ids of all output tokens.
    cycle_tokens: number of tokens committed after prefill.
    steps: number of the target's passes after prefill.
    seconds: time from the end of prefill.
    nodes: number of verified nodes; None if not measured.
    draft_passes: sequential passes of the drafters; None if not measured.
    stage_seconds: time by stage; empty if not measured.
    boundary_hits: number of steps whose true boundary was a selected prefix, and number of all steps with a boundary and selected
        prefixes.
    label: label of the entry.
    prompt, domain: index and domain of the prompt.
    """

    token_ids: tuple[int, ...]
    cycle_tokens: int
    steps: int
    seconds: float
    nodes: int | None = None
    draft_passes: int | None = None
    stage_seconds: tuple[tuple[str, float], ...] = ()
    boundary_hits: tuple[int, int] = (0, 0)
    label: str = ""
    prompt: int = 0
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A setting or baseline to run.

    label: name in tables.
    run: function that continues a prompt, given its token ids.
    config: the setting; None for a baseline.
    """

    label: str
    run: Callable[[Sequence[int]], BenchRun]
    config: DecodeConfig | None = None


def make_entry(engine: Engine, setting: BenchSetting) -> Entry:
    config = setting.config

    def run(ids: Sequence[int]) -> BenchRun:
        trace = engine.finish(engine.request(ids, config))()
        totals = trace.totals
        hits = [h for s in trace.steps if (h := boundary_hit(s)) is not None]
        return BenchRun(
            token_ids=tuple(trace.token_ids),
            cycle_tokens=sum(len(s.committed) for s in trace.steps),
            steps=totals.steps,
            seconds=totals.seconds,
            nodes=sum(len(s.nodes) for s in trace.steps),
            draft_passes=sum(s.draft_passes or 0 for s in trace.steps),
            stage_seconds=tuple(totals.stage_seconds.items()),
            boundary_hits=(sum(hits), len(hits)),
        )

    return Entry(setting.label, run, config)


def run_bench(
    entries: Sequence[Entry],
    prompts: Sequence[tuple[Prompt, Sequence[int]]],
    repeats: int = 1,
    progress: Callable[[], object] = lambda: None,
) -> Iterator[list[BenchRun]]:
    """Runs every entry once to warm up. Then yields, for each prompt, a list with one ``BenchRun`` per entry.

    In every repeat, the entries run in another random order (with a fixed seed), so that no entry always follows the same other one.

    prompts: prompts with their token ids.
    repeats: number of runs per prompt and entry. A ``BenchRun`` has the medians of their times.
    progress: called after every run.
    """
    for entry in entries if prompts else ():
        entry.run(prompts[0][1])
        progress()
    order = random.Random(0)
    for number, (prompt, ids) in enumerate(prompts):
        measured: dict[str, list[BenchRun]] = {entry.label: [] for entry in entries}
        for _ in range(repeats):
            for entry in order.sample(entries, len(entries)):
                measured[entry.label].append(entry.run(ids))
                progress()
        yield [
            replace(_median(runs), label=label, prompt=number, domain=prompt.domain) for label, runs in measured.items()
        ]


def run_count(entries: int, prompts: int, repeats: int) -> int:
    """Returns how often ``run_bench`` runs an entry, including the warm-up. It calls ``progress`` after every run."""
    return entries * (1 + prompts * repeats) if prompts else 0


def _median(runs: list[BenchRun]) -> BenchRun:
    """Returns the first run with the median times of all runs, which all wrote the same text."""
    stages = zip(*(r.stage_seconds for r in runs), strict=True)
    return replace(
        runs[0],
        seconds=median(r.seconds for r in runs),
        stage_seconds=tuple((same[0][0], median(s for _, s in same)) for same in stages),
    )


def collect(batches: Iterator[list[T]]) -> tuple[list[T], bool]:
    """Returns the items of all batches that were completed, and whether Ctrl-C ended the iteration.

    Raises ``KeyboardInterrupt`` if there are no items.
    """
    items, stopped = list[T](), False
    try:
        for batch in batches:
            items += batch
    except KeyboardInterrupt:
        stopped = True
    if not items:
        raise KeyboardInterrupt
    return items, stopped
