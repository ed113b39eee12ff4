"""Accumulates the statistics of many runs in one pass, without keeping the runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson

from d2sd.calibration.comparison import Comparison, compare
from d2sd.calibration.decisions import Expectations, expectations, pooled
from d2sd.calibration.paths import Paths, tabulate_paths
from d2sd.calibration.redrafts import RedraftTable
from d2sd.calibration.report import Labels, Report, calibrate, label
from d2sd.calibration.sides import Side
from d2sd.calibration.steps import StepTable, joined, tabulate, widened
from d2sd.calibration.trained import TrainedReport, compare_trained, head_confidence
from d2sd.trace.metrics import weights_of
from d2sd.trace.trace import Trace

AT_ONCE = 1024  # steps that are counted together
OF_RUNS = ("run", "prompt", "domain", "prompt_tokens")  # what a header says of its run alone


@dataclass(frozen=True, slots=True)
class Counted:
    """Statistics of some runs.

    prompts: of every run.
    head: see ``head_confidence``.
    """

    prompts: tuple[str, ...]
    table: StepTable
    paths: Paths
    labels: Labels
    head: np.ndarray
    expected: Expectations | None


class Gathering:
    """Accumulates runs one at a time.

    headers: the distinct headers, without the fields that differ for every run.
    texts: a digest of the prompt and generated text of every run.
    ended: number of runs without a step, because the text ended with prefill.
    """

    def __init__(self, traces: Iterable[Trace] = ()):
        self._waiting: list[Trace] = []
        self._parts: list[Counted] = []
        self._headers: dict[bytes, dict[str, Any]] = {}
        self.texts: list[bytes] = []
        self.ended = 0
        self._report: Report | None = None
        self._trained: tuple[TrainedReport | None] | None = None
        for trace in traces:
            self.add(trace)

    def __len__(self) -> int:
        return len(self.texts)

    def add(self, trace: Trace) -> None:
        """Add a run. Raises ``InputError`` if it exceeds the limits."""
        self._report = self._trained = None
        header = {name: value for name, value in trace.header.items() if name not in OF_RUNS}
        self._headers.setdefault(orjson.dumps(header, option=orjson.OPT_SORT_KEYS), header)
        ids = np.array(trace.token_ids, dtype=np.int64)
        self.texts.append(blake2b(trace.prompt.encode("utf-8", "replace") + b"\0" + ids.tobytes()).digest())
        self.ended += len(ids) == 1 and not trace.steps
        self._waiting.append(trace)
        if sum(len(t.steps) for t in self._waiting) >= AT_ONCE:
            self._count()

    @property
    def headers(self) -> list[dict[str, Any]]:
        """The distinct headers."""
        return list(self._headers.values())

    def counted(self) -> Counted:
        """Returns the statistics of all runs."""
        if self._waiting or not self._parts:
            self._count()
        if len(self._parts) > 1:
            self._parts = [_together(self._parts)]
        return self._parts[0]

    def report(self) -> Report:
        """Returns every calibration figure, computed once, since intervals take time."""
        if self._report is None:
            counted = self.counted()
            self._report = calibrate(counted.table, counted.paths, counted.labels)
        return self._report

    def side(self) -> Side:
        """Returns the runs as one side of a comparison."""
        counted = self.counted()
        drafter = weights_of(self.headers, "first_drafter")
        return Side(counted.table, counted.prompts, drafter, counted.labels.domains)

    def trained(self) -> TrainedReport | None:
        """Returns the confidence head against the softmax; None if the drafter has no head."""
        if self._trained is None:
            counted = self.counted()
            self._trained = (compare_trained(counted.table, counted.head),)
        return self._trained[0]

    def _count(self) -> None:
        runs = [t.steps[:] for t in self._waiting]
        steps = [s for run in runs for s in run]
        prompts = tuple(t.prompt for t in self._waiting)
        domains = tuple(t.domain for t in self._waiting)
        self._waiting.clear()
        table = tabulate(runs, prompts)
        self._parts.append(
            Counted(
                prompts,
                table,
                tabulate_paths(runs),
                label(runs, table, domains),
                head_confidence(steps),
                expectations(steps),
            )
        )


def compare_gathered(a: Gathering, b: Gathering) -> Comparison:
    """Returns the differences between two sets of runs."""
    return compare(a.side(), b.side(), same_text=sorted(a.texts) == sorted(b.texts))


def _together(parts: list[Counted]) -> Counted:
    before = np.cumsum([0, *(len(p.table) for p in parts)]).tolist()
    domains = tuple(d for p in parts for d in p.labels.domains)
    width = max(p.head.shape[1] for p in parts)
    return Counted(
        tuple(prompt for p in parts for prompt in p.prompts),
        joined([p.table for p in parts], [p.prompts for p in parts]),
        Paths(*_columns([p.paths for p in parts], before, ("row",))),
        Labels(
            domains,
            np.concatenate([p.labels.kinds for p in parts]),
            RedraftTable(*_columns([p.labels.redrafts for p in parts], before, ("row", "scored_row"))),
        ),
        np.concatenate([widened(p.head, width, np.nan) for p in parts]),
        pooled(p.expected for p in parts),
    )


def _columns(tables: list[Any], before: list[int], rows: tuple[str, ...]) -> Iterator[np.ndarray]:
    """The columns of several tables, one after another; those named ``rows`` number steps."""
    for name in tables[0].__dataclass_fields__:
        yield np.concatenate(
            [getattr(t, name) + (first if name in rows else 0) for t, first in zip(tables, before, strict=False)]
        )
