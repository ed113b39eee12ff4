"""The calibration report of a set of runs, and the list of all their steps. Statistics are collected run by run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import orjson

from d2sd.calibration.alternatives import Head, TemperatureAdvice, head_report, temperature_advice
from d2sd.calibration.boundaries import (
    DraftConfidence,
    Gains,
    Second,
    actual_outcomes,
    draft_confidence,
    gains,
    predicted_outcomes,
    ranks,
    second_report,
)
from d2sd.calibration.comparison import Comparison, Side, compare
from d2sd.calibration.resampling import Resampler
from d2sd.calibration.scores import Group, bin_numbers, by_domain
from d2sd.calibration.steps import (
    OTHER,
    UNSEEN,
    RunTables,
    Scores,
    StepTable,
    TableBuilder,
    observed,
    units,
)
from d2sd.calibration.text import count, decimal, digits
from d2sd.calibration.thresholds import Stops, stop_report
from d2sd.trace.events import StepDone, html_of
from d2sd.trace.metrics import DraftCosts, verdict, weights_of
from d2sd.trace.text import encodable
from d2sd.trace.trace import Trace

OF_RUNS = ("run", "prompt", "domain", "prompt_tokens")  # fields of a header that differ from run to run


@dataclass(frozen=True, slots=True, repr=False)
class Report(DraftConfidence):
    """Calibration figures of recorded runs. Figures of the confidence are about the first draft.

    runs, prompts, steps: numbers of runs, of distinct prompts, and of steps.
    of_paths: whether the scored positions are verified tree nodes, with the probability of the path to a node as its confidence. This
        is the case if no step has a block draft (EAGLE-3). Otherwise, the scored positions are those of first drafts.
    unit: name of the resampling unit of the intervals.
    gains: tokens that each draft adds; ``gains.tokens_per_step`` is α, and ``gains.nodes_per_step`` includes the anchor.
    advice: effect of fitted softmax temperatures; None if too few positions have probabilities at other temperatures.
    head: figures of a trained confidence head, and their differences from those of the softmax; None without such a head.
    second: figures of the second drafter's confidence; None without re-drafts.
    domains: figures by prompt group; empty if there is only one group.
    stops: effect of thresholds and shorter drafts; None without confidences.
    """

    runs: int
    prompts: int
    steps: int
    of_paths: bool
    unit: str
    gains: Gains
    advice: TemperatureAdvice | None
    head: Head | None
    second: Second | None = None
    domains: tuple[Group, ...] = ()
    stops: Stops | None = None

    def __repr__(self) -> str:
        figures = f"α {decimal(self.gains.tokens_per_step.value)}, ECE {digits(self.ece.value)}"
        return f"<Report on {count(self.runs, 'run')} with {count(self.steps, 'step')}: {figures}>"

    def _repr_html_(self) -> str:
        return html_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures as JSON-ready data."""
        return asdict(self)


class RunStatistics:
    """Statistics of recorded runs, which are added one at a time. The runs themselves are not kept.

    traces: the first runs to add.
    texts: a digest of the prompt and generated text of every run.
    ended: number of runs without steps, because the text ended at the token from prefill.
    costs: costs of steps, from which ``report`` calculates times. If it is None, the report has no times.
    """

    def __init__(self, traces: Iterable[Trace] = ()):
        self._builder = TableBuilder()
        self._headers: dict[bytes, dict[str, Any]] = {}
        # K of every run (None if it is unknown, or chosen for every step), and the kind of confidence that selected its prefixes
        self._selections: list[tuple[int | None, str]] = []
        self.texts: list[bytes] = []
        self.ended = 0
        self.costs: DraftCosts | None = None
        self._tables: RunTables | None = None
        self._report: Report | None = None
        for trace in traces:
            self.add(trace)

    def __repr__(self) -> str:
        return f"<RunStatistics of {count(len(self), 'run')}>"

    def __len__(self) -> int:
        return len(self.texts)

    def add(self, trace: Trace) -> None:
        """Add a run.

        trace: the run.

        Raises ``InputError`` if the runs have too many steps, or too long drafts, to tabulate.
        """
        self._builder.add(trace.steps[:], trace.prompt, trace.domain)
        self._tables = self._report = None
        header = {name: value for name, value in trace.header.items() if name not in OF_RUNS}
        self._headers.setdefault(orjson.dumps(header, option=orjson.OPT_SORT_KEYS), header)
        config = header.get("config") or {}
        num_branches = None if config.get("cost_aware") else config.get("num_branches")
        self._selections.append((num_branches, config.get("confidence", "softmax")))
        ids = np.array(trace.token_ids, dtype=np.int64)
        self.texts.append(blake2b(trace.prompt.encode("utf-8", "replace") + b"\0" + ids.tobytes()).digest())
        self.ended += len(ids) == 1 and not trace.steps

    @property
    def headers(self) -> list[dict[str, Any]]:
        """The distinct headers of the runs, without the fields that differ from run to run."""
        return list(self._headers.values())

    def counted(self) -> RunTables:
        """Returns the steps, re-drafts and tree nodes of all runs as tables. They are built on the first call, and again after ``add``."""
        if self._tables is None:
            self._tables = self._builder.tables()
        return self._tables

    def report(self) -> Report:
        """Returns all calibration figures, cached until a run is added."""
        if self._report is None:
            self._report = self._measured()
        return self._report

    def _measured(self) -> Report:
        """Returns all figures. If the runs have no steps, the report has no observations."""
        tables = self.counted()
        table, scores = tables.table, tables.table.scores
        # K of the runs and the kind of confidence that selected their prefixes; unknown if they differ
        selections = {self._selections[run] for run in np.unique(table.run[table.selected > 0])}
        num_branches, by = selections.pop() if len(selections) == 1 else (None, "")
        sequential = {header.get("method") for header in self.headers} == {"draft_model"}
        unit, name = units(table)
        resampler = Resampler(int(unit.max(initial=-1)) + 1)
        of_paths = len(tables.verified) > 0 and not len(scores)
        every = tables.verified if of_paths else scores
        return Report(
            runs=table.runs,
            prompts=table.prompts,
            steps=len(table),
            of_paths=of_paths,
            unit=name,
            **draft_confidence(table, every, unit, resampler, num_branches if by == "softmax" else None),
            gains=gains(table, unit, resampler),
            advice=None if of_paths else temperature_advice(tables, unit, resampler),
            head=head_report(tables, unit, resampler, num_branches, by == "head"),
            second=second_report(tables, unit, resampler),
            domains=by_domain(table, every.known(), unit, tables.domains, resampler),
            stops=stop_report(table, sequential, self.costs, tables.domains),
        )

    def side(self) -> Side:
        """Returns the runs as a side of a comparison."""
        tables = self.counted()
        return Side(tables.table, tables.prompts, weights_of(self.headers, "first_drafter"))


def calibrate(traces: Iterable[Trace]) -> Report:
    """Returns all calibration figures of recorded runs.

    traces: the runs. If they have no steps, the report has no observations.

    Raises ``InputError`` as ``RunStatistics.add`` does.
    """
    return RunStatistics(traces).report()


def compare_runs(a: RunStatistics, b: RunStatistics) -> Comparison:
    return compare(a.side(), b.side(), same_text=a.texts == b.texts)


# The list of steps: the texts and figures of each step, and the chart marks that count the step. With this list, the page shows the
# steps that a clicked mark counts without another computation.

MAX_CHARACTERS = 24  # characters of a token's text


class StepWords(NamedTuple):
    """The texts of a step in the list of steps.

    texts: texts of the scored tokens of the first draft. If the step has no first draft: texts of all tree nodes.
    nodes: ids of the tree nodes that hold the scored tokens of the first draft, up to the first token that is not in the tree.
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
    """Runs that are measured together. What figures and the list of steps need is extracted from a run when it is added.

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

    def listing(self) -> dict[str, dict[str, Any]]:
        """Returns the list of steps as JSON-ready data.

        A step's scored positions are tree nodes if ``Report.of_paths`` is true, otherwise positions of the first draft.

        "steps": the columns of the list, each with one entry per step:

        * run, step: number of the run, and of the step in the run.
        * matched: how many scored positions were accepted; −1 if nothing was drafted.
        * predicted, happened: predicted and actual outcome, numbered as in ``Matrix``; ``happened`` is −1 if it is unknown.
        * rank: rank of the true boundary among all boundaries; 1 is the likeliest, 0 means that there is no boundary.
        * confidence, depths, tokens, nodes: a list with one entry per scored position.
        * wanted: the target's token at the first rejection.
        * outcome: ``d2sd.trace.metrics.verdict``; empty if that is None.

        "head": the columns predicted, rank and confidence by the confidence head; empty without a head. Ids of charts about the head
        begin with "head-".

        "places": the marks of each chart that count a step. ``places[kind][chart][step]`` is a list of indices into the chart's
        marks. For kind "positions", it has one index per scored position; for kind "steps", the indices for the whole step.
        """
        tables, report, words = self.statistics.counted(), self.statistics.report(), self.words
        table, redrafted = tables.table, tables.redrafted
        scores = tables.verified if report.of_paths else table.scores
        columns, of_positions, pairs = _predictions(table, scores)
        confidence, head = columns["confidence"], dict[str, Any]()
        if by_head := tables.by_head:
            head, positions, more = _predictions(by_head, by_head.scores.known())
            of_positions |= {f"head-{chart}": marks for chart, marks in positions.items()}
            pairs |= {f"head-{chart}": marks for chart, marks in more.items()}
        if report.of_paths:
            matched = np.full(len(table), UNSEEN)
            matched[scores.row] = 0
            matched += np.bincount(scores.row, scores.accepted, len(table)).astype(int)
            nodes: Sequence[Sequence[int]] = _by_step(len(table), scores.row, tables.node)
            texts = [tuple(w.texts[n] for n in ids) for w, ids in zip(words, nodes, strict=True)]
        else:
            matched, nodes = table.matched, [w.nodes for w in words]
            texts = [w.texts[: len(scored)] for w, scored in zip(words, confidence, strict=True)]
        row, source = np.nonzero(table.gained)
        groups = {group.name: n for n, group in enumerate(report.domains)}
        group = np.array([groups.get(domain, -1) for domain in tables.domains], int)
        steps = {
            **columns,
            "run": table.run.tolist(),
            "step": table.step.tolist(),
            "matched": matched.tolist(),
            "happened": np.where(table.boundary_known, actual_outcomes(table), -1).tolist(),
            "depths": of_positions["positions"],
            "tokens": texts,
            "nodes": nodes,
            "wanted": [w.wanted for w in words],
            "outcome": [w.outcome for w in words],
        }
        pairs |= {
            "gains": (row, np.where(source == table.gained.shape[1] - 1, OTHER, source)),
            "second": (redrafted.row, bin_numbers(redrafted.confidence)),
            "domain": (np.arange(len(table)), group[table.run]),
        }
        of_steps = {chart: _distinct(len(table), *marks) for chart, marks in pairs.items()}
        return {"steps": steps, "head": head, "places": {"positions": of_positions, "steps": of_steps}}


def _predictions(table: StepTable, scores: Scores) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Returns the part of the list of steps that depends on the kind of confidence: columns by name, the marks of each scored
    position by chart, and (rows of steps, marks) by chart.
    """
    size, boundary = table.confidence.shape[1], ranks(table.confidence, table.boundary)
    rank = np.where(table.rejected & (boundary < size), boundary + 1, 0)
    guesses, seen = predicted_outcomes(table), np.flatnonzero(table.boundary_known & table.has_confidence)
    confidence, bins, depths = (
        _by_step(len(table), scores.row, values)
        for values in (scores.confidence.round(4), bin_numbers(scores.confidence), scores.position)
    )
    return (
        {"predicted": guesses.tolist(), "rank": rank.tolist(), "confidence": confidence},
        {"uniform": bins, "positions": depths},
        {
            "matrix": (seen, (actual_outcomes(table) * (size + 1) + guesses)[seen]),
            "ranks": (np.flatnonzero(rank), rank[rank > 0] - 1),
        },
    )


def _nodes(step: StepDone, count: int) -> tuple[int, ...]:
    """Returns ids of the tree nodes that hold the first ``count`` tokens of the first draft, up to the first token not in the tree."""
    path, parent, nodes = [], 0, step.nodes
    for token in step.first_draft.ids[:count] if step.first_draft else ():
        node = parent + 1  # id of the token's node in a tree that begins with the first draft
        if node >= len(nodes) or nodes[node].parent != parent or nodes[node].token != token:
            node = next((n.id for n in nodes if n.parent == parent and n.token == token), 0)
        if not node:
            break
        path.append(node)
        parent = node
    return tuple(path)


def cut_label(text: str) -> str:
    return encodable(text)[:MAX_CHARACTERS]


def _by_step(count: int, rows: np.ndarray, values: np.ndarray) -> list[list[Any]]:
    """Returns a list with the values of each of ``count`` steps. rows: for each value, the row of its step, ascending."""
    starts, entries = np.searchsorted(rows, np.arange(count + 1)).tolist(), values.tolist()
    return [entries[start:end] for start, end in pairwise(starts)]


def _distinct(count: int, rows: np.ndarray, values: np.ndarray) -> list[list[int]]:
    """Returns a list with the distinct values of each of ``count`` steps, ascending. rows: for each value, the row of its step."""
    lists: list[list[int]] = [[] for _ in range(count)]
    for row, value in sorted(set(zip(rows.tolist(), values.tolist(), strict=True))):
        lists[row].append(value)
    return lists
