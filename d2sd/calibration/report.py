"""The calibration report and the list of steps of a set of runs. Statistics are collected run by run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import orjson

from d2sd.calibration.alternatives import HeadErrors, TemperatureAdvice, head_errors, temperature_advice
from d2sd.calibration.boundaries import (
    OTHER,
    Gains,
    Matrix,
    Ranks,
    Second,
    gains,
    happened,
    outcome_matrix,
    predicted,
    rank_table,
    ranks,
    second_report,
)
from d2sd.calibration.comparison import Comparison, Side, compare
from d2sd.calibration.resampling import Resampler
from d2sd.calibration.scores import (
    ConfidenceFigures,
    Group,
    PositionAcceptance,
    Scores,
    acceptance_by_position,
    by_domain,
    confidence_figures,
    places,
    score,
)
from d2sd.calibration.steps import (
    UNSEEN,
    Paths,
    RedraftTable,
    StepTable,
    joined,
    observed,
    stacked,
    tabulate,
    tabulate_paths,
    tabulate_redrafts,
    units,
)
from d2sd.calibration.thresholds import Stops, stop_report
from d2sd.trace.events import StepDone
from d2sd.trace.metrics import DraftCosts, verdict, weights_of
from d2sd.trace.text import encodable
from d2sd.trace.trace import Trace

BATCH = 1024  # steps that are tabulated together
OF_RUNS = ("run", "prompt", "domain", "prompt_tokens")  # fields of a header that differ from run to run


@dataclass(frozen=True, slots=True)
class Report(ConfidenceFigures):
    """Calibration figures of recorded runs; those of the confidence are about the first draft.

    runs, prompts, steps: numbers of runs, of distinct prompts, and of steps.
    of_paths: whether positions are verified tree nodes, each scored by the probability of its path.
    unit: name of the resampling unit of the intervals.
    by_position: acceptance by position, also of tokens without a confidence.
    matrix: predicted against actual boundaries.
    ranks: how often the actual boundary was among the boundaries predicted as likeliest.
    gains: tokens that each draft adds; ``gains.tokens_per_step`` is α.
    advice: effect of fitted softmax temperatures; None if too few positions have probabilities at other temperatures.
    head: ECE of a trained confidence head; None without such a head.
    second: figures of the second drafter's confidence; None without re-drafts.
    domains: figures by prompt group; empty if there is only one group.
    stops: effect of thresholds and shorter drafts; None without confidences.
    """

    runs: int
    prompts: int
    steps: int
    of_paths: bool
    unit: str
    by_position: tuple[PositionAcceptance, ...]
    matrix: Matrix
    ranks: Ranks
    gains: Gains
    advice: TemperatureAdvice | None
    head: HeadErrors | None
    second: Second | None = None
    domains: tuple[Group, ...] = ()
    stops: Stops | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures as JSON-ready data."""
        return asdict(self)


def calibrate_steps(
    table: StepTable,
    paths: Paths | None = None,
    redrafts: RedraftTable | None = None,
    domains: Sequence[str] = (),
    costs: DraftCosts | None = None,
    sequential: bool = False,
    num_branches: int | None = None,
) -> Report:
    """Returns all figures of these steps; an empty table gives a report without observations.

    paths: nodes of the trees without a block draft; used only if no step has a block draft.
    redrafts: re-drafts of the steps.
    domains: prompt group of every run.
    costs, sequential: as for ``stop_report``.
    num_branches: K of the runs, if known.
    """
    unit, name = units(table)
    resampler = Resampler(int(unit.max(initial=-1)) + 1)
    every = score(table, unit)
    scores, of_paths = every.known(), False
    if paths is not None and len(paths) and not len(every):
        of_paths = True
        scores = Scores(paths.probability, paths.accepted, paths.depth, paths.row, unit[paths.row])
    return Report(
        runs=table.runs,
        prompts=table.prompts,
        steps=len(table),
        of_paths=of_paths,
        unit=name,
        **confidence_figures(scores, resampler),
        by_position=tuple(acceptance_by_position(scores if of_paths else every)),
        matrix=outcome_matrix(table),
        ranks=rank_table(table, unit, resampler, num_branches),
        gains=gains(table, unit, resampler),
        advice=None if of_paths else temperature_advice(table, scores, resampler),
        head=head_errors(table, unit, resampler),
        second=second_report(redrafts, unit, resampler) if redrafts else None,
        domains=by_domain(table, scores, unit, domains, resampler),
        stops=stop_report(table, sequential, costs, domains),
    )


@dataclass(frozen=True, slots=True)
class Counted:
    """Tables of some runs; ``prompts``, ``domains``: prompt and prompt group of every run."""

    prompts: tuple[str, ...]
    domains: tuple[str, ...]
    table: StepTable
    paths: Paths
    redrafts: RedraftTable


class RunStatistics:
    """Statistics of recorded runs, which are added one at a time; the runs themselves are not kept.

    traces: runs to begin with.
    texts: a digest of the prompt and generated text of every run.
    ended: number of runs without steps, because the text ended at the token from prefill.
    costs: costs of steps, from which ``report`` calculates times; None: no times.
    """

    def __init__(self, traces: Iterable[Trace] = ()):
        self._waiting: list[Trace] = []
        self._parts: list[Counted] = []
        self._headers: dict[bytes, dict[str, Any]] = {}
        self._num_branches: list[int | None] = []  # K of every run; None if it is unknown, or chosen for every step
        self.texts: list[bytes] = []
        self.ended = 0
        self.costs: DraftCosts | None = None
        self._report: Report | None = None
        for trace in traces:
            self.add(trace)

    def __len__(self) -> int:
        return len(self.texts)

    def add(self, trace: Trace) -> None:
        """Add a run.

        trace: the run.

        Raises ``InputError`` if the runs have too many steps, or too long drafts, to tabulate.
        """
        self._report = None
        header = {name: value for name, value in trace.header.items() if name not in OF_RUNS}
        self._headers.setdefault(orjson.dumps(header, option=orjson.OPT_SORT_KEYS), header)
        config = header.get("config") or {}
        self._num_branches.append(None if config.get("cost_aware") else config.get("num_branches"))
        ids = np.array(trace.token_ids, dtype=np.int64)
        self.texts.append(blake2b(trace.prompt.encode("utf-8", "replace") + b"\0" + ids.tobytes()).digest())
        self.ended += len(ids) == 1 and not trace.steps
        self._waiting.append(trace)
        if sum(len(t.steps) for t in self._waiting) >= BATCH:
            self._count()

    @property
    def headers(self) -> list[dict[str, Any]]:
        """The distinct headers of the runs, without the fields that differ from run to run."""
        return list(self._headers.values())

    def counted(self) -> Counted:
        """Returns the steps, re-drafts and tree nodes of all runs as tables."""
        if self._waiting or not self._parts:
            self._count()
        if len(self._parts) > 1:
            self._parts = [_together(self._parts)]
        return self._parts[0]

    def report(self) -> Report:
        """Returns all calibration figures, cached until a run is added."""
        if self._report is None:
            counted = self.counted()
            redrafting = np.unique(counted.table.run[counted.table.selected > 0])
            num_branches = {self._num_branches[run] for run in redrafting}
            self._report = calibrate_steps(
                counted.table,
                counted.paths,
                counted.redrafts,
                counted.domains,
                self.costs,
                sequential={header.get("method") for header in self.headers} == {"draft_model"},
                num_branches=num_branches.pop() if len(num_branches) == 1 else None,
            )
        return self._report

    def side(self) -> Side:
        """Returns the runs as a side of a comparison."""
        counted = self.counted()
        return Side(counted.table, counted.prompts, weights_of(self.headers, "first_drafter"))

    def _count(self) -> None:
        runs = [t.steps[:] for t in self._waiting]
        prompts = tuple(t.prompt for t in self._waiting)
        domains = tuple(t.domain for t in self._waiting)
        self._waiting.clear()
        parts = tabulate(runs, prompts), tabulate_paths(runs), tabulate_redrafts(runs)
        self._parts.append(Counted(prompts, domains, *parts))


def calibrate(traces: Iterable[Trace]) -> Report:
    """Returns all calibration figures of recorded runs.

    traces: the runs; without steps, the report has no observations.

    Raises ``InputError`` as ``RunStatistics.add`` does.
    """
    return RunStatistics(traces).report()


def compare_runs(a: RunStatistics, b: RunStatistics) -> Comparison:
    return compare(a.side(), b.side(), same_text=a.texts == b.texts)


def _together(parts: list[Counted]) -> Counted:
    before = np.cumsum([0, *(len(p.table) for p in parts)]).tolist()
    return Counted(
        tuple(prompt for p in parts for prompt in p.prompts),
        tuple(domain for p in parts for domain in p.domains),
        joined([p.table for p in parts], [p.prompts for p in parts]),
        Paths(*stacked([p.paths for p in parts], before)),
        RedraftTable(*stacked([p.redrafts for p in parts], before)),
    )


# The list of steps: the texts, figures and chart marks of each step. With these, a click on a mark of a chart lists the mark's
# steps without another computation.

MAX_CHARACTERS = 24  # characters of a token's text


@dataclass(frozen=True, slots=True)
class StepWords:
    """The texts of a step in the list of steps.

    texts: texts of the scored tokens of the first draft; without a first draft, of all tree nodes.
    nodes: ids of the tree nodes of these tokens, up to the first token that is not in the tree.
    wanted: text of the target's token at the first rejection; empty if no token was rejected.
    outcome: the step's ``d2sd.trace.metrics.verdict``; empty if that is None.
    """

    texts: tuple[str, ...]
    nodes: tuple[int, ...]
    wanted: str
    outcome: str

    @classmethod
    def of(cls, step: StepDone) -> StepWords:
        matched, boundary = observed(step)
        draft = step.first_draft
        count = 0 if draft is None else min(matched + (boundary != UNSEEN), len(draft.ids))
        texts = (n.text for n in step.nodes) if draft is None else draft.texts[: max(0, count)]
        wanted = cut_label(step.committed[boundary].text) if 0 <= boundary < len(step.committed) else ""
        return cls(tuple(map(cut_label, texts)), _nodes(step, max(0, count)), wanted, verdict(step) or "")


class MeasuredRuns:
    """Runs that are measured together. The data for figures and the list of steps is extracted from a run when it is added.

    statistics: the data for the figures.
    words: the texts of every step, in the order of the runs.
    """

    def __init__(self, traces: Iterable[Trace] = ()):
        self.statistics = RunStatistics()
        self.words: list[StepWords] = []
        for trace in traces:
            self.add(trace)

    def add(self, trace: Trace) -> None:
        """Add a run. Raises ``InputError`` if the runs exceed the limits of ``RunStatistics``."""
        self.statistics.add(trace)
        self.words += map(StepWords.of, trace.steps)

    def listing(self) -> dict[str, Any]:
        """Returns the list of steps as JSON-ready data: columns ("steps"), and chart marks of each step ("places")."""
        counted, report = self.statistics.counted(), self.statistics.report()
        paths = counted.paths if report.of_paths else None
        return {
            "steps": step_columns(counted.table, self.words, paths),
            "places": step_places(counted, report, paths),
        }


def _nodes(step: StepDone, count: int) -> tuple[int, ...]:
    """Returns the tree nodes of the first ``count`` tokens of the first draft; fewer if the tree lacks some."""
    found, parent, nodes = [], 0, step.nodes
    for token in step.first_draft.ids[:count] if step.first_draft else ():
        here = parent + 1  # id of the token's node in a tree that begins with the first draft
        if here >= len(nodes) or nodes[here].parent != parent or nodes[here].token != token:
            here = next((n.id for n in nodes if n.parent == parent and n.token == token), 0)
        if not here:
            break
        found.append(here)
        parent = here
    return tuple(found)


def cut_label(text: str) -> str:
    return encodable(text)[:MAX_CHARACTERS]


def scored(table: StepTable, paths: Paths | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns step row, confidence and depth of the scored positions, or of ``paths`` if given."""
    if paths is not None:
        return paths.row, paths.probability, paths.depth
    rows, at = np.nonzero(table.scored)
    return rows, table.confidence[rows, at], at + 1


def step_columns(table: StepTable, words: Sequence[StepWords], paths: Paths | None = None) -> dict[str, list[Any]]:
    """Returns the columns of the list of steps, one entry per step.

    * run, step: number of the run, and of the step in the run.
    * matched: number of accepted scored positions (or nodes of ``paths``); −1: nothing was drafted.
    * predicted, happened: outcomes, numbered as in ``Matrix``; ``happened`` is −1 if unknown.
    * rank: rank of the true boundary, from 1; 0: no boundary.
    * confidence, depths, tokens, nodes: one list per step, over its scored positions.
    * wanted: the target's token at the first rejection.
    * outcome: ``d2sd.trace.metrics.verdict``; empty if that is None.
    """
    matched = table.matched
    rows, confidence, depths = scored(table, paths)
    if paths is not None:
        matched = np.full(len(table), UNSEEN)
        matched[rows] = 0
        matched += np.bincount(rows, weights=paths.accepted, minlength=len(table)).astype(int)
    own_confidence = _by_step(len(table), rows, confidence.round(4))
    if paths is None:
        nodes: list[Any] = [w.nodes for w in words]
        drafted = [w.texts[: len(own)] for w, own in zip(words, own_confidence, strict=True)]
    else:
        nodes = _by_step(len(table), rows, paths.node)
        drafted = [tuple(w.texts[n] for n in own) for w, own in zip(words, nodes, strict=True)]
    return {
        "run": table.run.tolist(),
        "step": table.step.tolist(),
        "matched": matched.tolist(),
        "predicted": predicted(table).tolist(),
        "happened": np.where(table.seen, happened(table), -1).tolist(),
        "rank": _rank(table).tolist(),
        "confidence": own_confidence,
        "depths": _by_step(len(table), rows, depths),
        "tokens": drafted,
        "nodes": nodes,
        "wanted": [w.wanted for w in words],
        "outcome": [w.outcome for w in words],
    }


def step_places(counted: Counted, report: Report, paths: Paths | None = None) -> dict[str, dict[str, list[list[int]]]]:
    """Returns indices of chart marks as [kind][chart][step], with a list for each step.

    Kind "positions" has one index per scored position of the step, and kind "steps" the indices for the step as a whole.
    """
    table, redrafts = counted.table, counted.redrafts
    count, (rows, confidence, depths) = len(table), scored(table, paths)
    size, seen, rank = table.confidence.shape[1] + 1, np.flatnonzero(table.seen), _rank(table)
    cells = happened(table) * size + predicted(table)
    won_row, won = np.nonzero(table.gained)
    groups = {g.name: n for n, g in enumerate(report.domains)}
    of_run = np.array([groups.get(d, -1) for d in counted.domains], int)
    positions = {"uniform": places(confidence), "positions": depths}
    steps = {
        "matrix": (seen, cells[seen]),
        "ranks": (np.flatnonzero(rank), rank[rank > 0] - 1),
        "gains": (won_row, np.where(won == table.gained.shape[1] - 1, OTHER, won)),
        "second": (redrafts.row, places(redrafts.confidence)),
        "domain": (np.arange(count), of_run[table.run]),
    }
    return {
        "positions": {name: _by_step(count, rows, own) for name, own in positions.items()},
        "steps": {name: _by_row(count, *pairs) for name, pairs in steps.items()},
    }


def _rank(table: StepTable) -> np.ndarray:
    """Returns the rank of each step's true boundary, from 1; 0 without a boundary."""
    place = ranks(table.confidence, table.boundary)
    return np.where(table.partly & (place < table.confidence.shape[1]), place + 1, 0)


def _by_step(count: int, rows: np.ndarray, values: np.ndarray) -> list[list[Any]]:
    """Returns the values of each of ``count`` steps. rows: row of the step of each value, sorted."""
    starts, own = np.searchsorted(rows, np.arange(count + 1)).tolist(), values.tolist()
    return [own[a:b] for a, b in pairwise(starts)]


def _by_row(count: int, rows: np.ndarray, values: np.ndarray) -> list[list[int]]:
    out: list[list[int]] = [[] for _ in range(count)]
    for row, value in sorted(set(zip(rows.tolist(), values.tolist(), strict=True))):
        out[row].append(value)
    return out
