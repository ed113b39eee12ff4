"""All calibration figures of a set of runs, and the statistics that they are computed from, gathered run by run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson

from d2sd.calibration.alternatives import TemperatureAdvice, TrainedReport, compare_trained, temperature_advice
from d2sd.calibration.boundaries import (
    Gains,
    Matrix,
    Ranks,
    Second,
    gains,
    outcome_matrix,
    rank_table,
    second_report,
)
from d2sd.calibration.comparison import Comparison, Side, compare
from d2sd.calibration.resampling import Estimate, Resampler
from d2sd.calibration.scores import (
    Bin,
    Group,
    PositionAcceptance,
    Scores,
    acceptance_by_position,
    brier_score,
    by_domain,
    by_kind,
    calibration_error,
    confidence_figures,
    equal_mass_edges,
    reliability,
    score,
    token_kinds,
    uniform_edges,
)
from d2sd.calibration.steps import (
    Paths,
    RedraftTable,
    StepTable,
    joined,
    stacked,
    tabulate,
    tabulate_paths,
    tabulate_redrafts,
    units,
)
from d2sd.trace.events import StepDone
from d2sd.trace.metrics import weights_of
from d2sd.trace.trace import Trace

AT_ONCE = 1024  # steps that are counted together
OF_RUNS = ("run", "prompt", "domain", "prompt_tokens")  # fields of a header that differ from run to run


@dataclass(frozen=True, slots=True)
class Report:
    """Figures of the first draft's confidence.

    runs, prompts, steps: numbers of runs, of distinct prompts, and of steps.
    positions: number of scored positions; with ``of_paths``, of verified nodes, scored by the probabilities of their paths.
    unit: name of the resampling unit of the intervals.
    confidence, accepted: means over scored positions. Positions without a confidence count in ``by_position`` only.
    gap: accepted − confidence; negative if the drafter is over-confident.
    error, adaptive: ECE with equal-width and with equal-mass bins.
    chance: expected ECE of a perfectly calibrated drafter.
    matrix, ranks, gains, advice: see their classes.
    second, domains, kinds: empty unless ``calibrate`` was given the labels that they need.
    """

    runs: int
    prompts: int
    steps: int
    positions: int
    of_paths: bool
    unit: str
    confidence: float | None
    accepted: float | None
    gap: Estimate
    error: Estimate
    chance: float | None
    adaptive: Estimate
    brier: Estimate
    uniform: tuple[Bin, ...]
    equal_mass: tuple[Bin, ...]
    by_position: tuple[PositionAcceptance, ...]
    matrix: Matrix
    ranks: Ranks
    gains: Gains
    advice: TemperatureAdvice | None
    second: Second | None = None
    domains: tuple[Group, ...] = ()
    kinds: tuple[Group, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures as JSON-ready data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of steps.

    domains: prompt group of every run.
    kinds: index in ``scores.KINDS`` of every scored position.
    redrafts: re-drafts of the second drafter.
    """

    domains: tuple[str, ...]
    kinds: np.ndarray
    redrafts: RedraftTable


def label(runs: Sequence[Sequence[StepDone]], table: StepTable, domains: Sequence[str] = ()) -> Labels:
    """Returns the labels of runs and their table; ``domains``: one per run, or none for a single group."""
    steps = [s for run in runs for s in run]
    scores = score(table, np.zeros(len(table), int))
    return Labels(tuple(domains) or ("all",) * len(runs), token_kinds(steps, scores), tabulate_redrafts(runs, table))


@dataclass(frozen=True, slots=True)
class Curves:
    """The curves of one side that a comparison draws, as in ``Report``."""

    steps: int
    positions: int
    uniform: tuple[Bin, ...]
    ranks: Ranks


def curves(table: StepTable) -> Curves:
    """Returns reliability and boundary ranks of these steps, without the other figures of a report."""
    unit, _ = units(table)
    scores = score(table, unit).known()
    resampler = Resampler(int(unit.max(initial=-1)) + 1)
    bins = tuple(reliability(scores, uniform_edges()))
    return Curves(len(table), len(scores), bins, rank_table(table, unit, resampler))


def calibrate(table: StepTable, paths: Paths | None = None, labels: Labels | None = None) -> Report:
    """Returns all figures of these steps; an empty table gives a report without observations.

    paths: their trees without a block draft, which are used if no step has a block draft."""
    unit, name = units(table)
    resampler = Resampler(int(unit.max(initial=-1)) + 1)
    observed = score(table, unit)
    scores, of_paths = observed.known(), False
    if paths is not None and len(paths) and not len(observed):
        of_paths = True
        scores = Scores(paths.probability, paths.accepted, paths.depth, paths.row, unit[paths.row])
    adaptive = equal_mass_edges(scores.confidence)
    return Report(
        runs=table.runs,
        prompts=table.prompts,
        steps=len(table),
        of_paths=of_paths,
        unit=name,
        **confidence_figures(scores, resampler),
        adaptive=calibration_error(scores, adaptive, resampler),
        brier=brier_score(scores, resampler),
        equal_mass=tuple(reliability(scores, adaptive)),
        by_position=tuple(acceptance_by_position(scores if of_paths else observed)),
        matrix=outcome_matrix(table, unit, resampler),
        ranks=rank_table(table, unit, resampler),
        gains=gains(table, unit, resampler),
        advice=None if of_paths else temperature_advice(table, scores, resampler),
        second=second_report(labels.redrafts, unit, resampler) if labels else None,
        domains=by_domain(table, scores, unit, labels.domains, resampler) if labels else (),
        kinds=by_kind(scores, labels.kinds[~np.isnan(observed.confidence)], resampler)
        if labels and not of_paths
        else (),
    )


@dataclass(frozen=True, slots=True)
class Counted:
    """Statistics of some runs; ``prompts``: of every run."""

    prompts: tuple[str, ...]
    table: StepTable
    paths: Paths
    labels: Labels


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
            self._trained = (compare_trained(self.counted().table),)
        return self._trained[0]

    def _count(self) -> None:
        runs = [t.steps[:] for t in self._waiting]
        prompts = tuple(t.prompt for t in self._waiting)
        domains = tuple(t.domain for t in self._waiting)
        self._waiting.clear()
        table = tabulate(runs, prompts)
        labels = label(runs, table, domains)
        self._parts.append(Counted(prompts, table, tabulate_paths(runs), labels))


def compare_gathered(a: Gathering, b: Gathering) -> Comparison:
    """Returns the differences between two sets of runs."""
    return compare(a.side(), b.side(), same_text=sorted(a.texts) == sorted(b.texts))


def _together(parts: list[Counted]) -> Counted:
    before = np.cumsum([0, *(len(p.table) for p in parts)]).tolist()
    redrafts = RedraftTable(*stacked([p.labels.redrafts for p in parts], before, ("row", "scored_row")))
    domains = tuple(d for p in parts for d in p.labels.domains)
    return Counted(
        tuple(prompt for p in parts for prompt in p.prompts),
        joined([p.table for p in parts], [p.prompts for p in parts]),
        Paths(*stacked([p.paths for p in parts], before, ("row",))),
        Labels(domains, np.concatenate([p.labels.kinds for p in parts]), redrafts),
    )
