"""The steps behind the figures: their texts, their columns in a list of steps, and the marks of figures that each belongs to.

A click on a mark of a figure can therefore list its steps without another computation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from d2sd.calibration.alternatives import trained_tables
from d2sd.calibration.boundaries import OTHER, WHOLE, gain_places, happened, predicted, ranks
from d2sd.calibration.report import Gathering, Labels, Report
from d2sd.calibration.scores import equal_mass_edges, places, uniform_edges
from d2sd.calibration.steps import UNSEEN, Paths, StepTable, observed
from d2sd.trace.events import StepDone
from d2sd.trace.metrics import verdict
from d2sd.trace.trace import Trace

MAX_CHARACTERS = 24  # of a token's text


@dataclass(frozen=True, slots=True)
class StepWords:
    """The texts of a step in the list of steps.

    texts: texts of the scored tokens of the first draft, or of all nodes in a tree without one.
    nodes: ids of the tree nodes of these tokens; tokens that are not in the tree have none.
    wanted: text of the target's token at the first rejection; empty if there was none.
    outcome: the step's ``d2sd.trace.metrics.verdict``; empty if it has none.
    """

    texts: tuple[str, ...]
    nodes: tuple[int, ...]
    wanted: str
    outcome: str

    @classmethod
    def of(cls, step: StepDone) -> StepWords:
        """Returns the texts of a step."""
        matched, boundary = observed(step)
        draft = step.first_draft
        count = 0 if draft is None else min(matched + (boundary != UNSEEN), len(draft.ids))
        texts = (n.text for n in step.nodes) if draft is None else draft.texts[: max(0, count)]
        wanted = cut(step.committed[boundary].text) if 0 <= boundary < len(step.committed) else ""
        return cls(tuple(map(cut, texts)), _nodes(step, max(0, count)), wanted, verdict(step) or "")


class Measured:
    """Runs measured together: what figures and the list of steps need is extracted from each run as it ends.

    gathering: the data for the figures.
    words: the texts of every step, in the order of the runs.
    """

    def __init__(self, traces: Iterable[Trace] = ()):
        self.gathering = Gathering()
        self.words: list[StepWords] = []
        for trace in traces:
            self.add(trace)

    def add(self, trace: Trace) -> None:
        """Add a run. Raises ``InputError`` if the runs exceed the limits of ``Gathering``."""
        self.gathering.add(trace)
        self.words += map(StepWords.of, trace.steps)

    def listing(self) -> dict[str, Any]:
        """Returns the list of steps as JSON-ready data: its columns ("steps"), and the marks of every figure that each step belongs
        to ("places")."""
        counted, report = self.gathering.counted(), self.gathering.report()
        paths = counted.paths if report.of_paths else None
        return {
            "steps": step_columns(counted.table, self.words, paths),
            "places": step_places(counted.table, report, counted.labels, paths),
        }


def _nodes(step: StepDone, count: int) -> tuple[int, ...]:
    """The tree nodes of the first ``count`` tokens of the first draft; fewer where the tree leaves some out."""
    found, parent, nodes = [], 0, step.nodes
    for token in step.first_draft.ids[:count] if step.first_draft else ():
        here = parent + 1  # where a tree that begins with the first draft has it
        if here >= len(nodes) or nodes[here].parent != parent or nodes[here].token != token:
            here = next((n.id for n in nodes if n.parent == parent and n.token == token), 0)
        if not here:
            break
        found.append(here)
        parent = here
    return tuple(found)


def cut(text: str) -> str:
    """Returns a token's text as the list shows it."""
    return text.encode("utf-8", "replace").decode()[:MAX_CHARACTERS]


def scored(table: StepTable, paths: Paths | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns rows of steps, confidences and depths of the scored positions, or of ``paths`` where these are scored instead."""
    if paths is not None:
        return paths.row, paths.probability, paths.depth
    rows, at = np.nonzero(table.scored)
    return rows, table.confidence[rows, at], at + 1


def step_columns(table: StepTable, words: Sequence[StepWords], paths: Paths | None = None) -> dict[str, list[Any]]:
    """Returns the columns of the list of steps, one entry per step.

    * run, step: where it is.
    * matched: scored positions (or of ``paths``) that were accepted; −1: nothing was drafted.
    * drafted: tokens of the first draft.
    * predicted, happened: outcomes as in the matrix.
    * rank: of the true boundary, from 1; 0: none.
    * confidence, depths, tokens, nodes: of its scored positions.
    * wanted: the target's token at the first rejection.
    * outcome: ``d2sd.trace.metrics.verdict``; empty: none.
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
        "drafted": table.drafted.tolist(),
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


def step_places(
    table: StepTable, report: Report, labels: Labels, paths: Paths | None = None
) -> dict[str, dict[str, list[list[int]]]]:
    """Returns by figure the indices of the marks that each step belongs to.

    ``positions`` has one for every scored position of a step, ``steps`` those of the step as a whole.
    """
    count, (rows, confidence, depths) = len(table), scored(table, paths)
    positions = {
        "uniform": places(confidence, uniform_edges()),
        "equal_mass": places(confidence, equal_mass_edges(confidence)),
        "positions": depths,
        "kind": labels.kinds,
    }
    size, seen, rank = table.confidence.shape[1] + 1, np.flatnonzero(table.seen), _rank(table)
    cells = happened(table) * size + predicted(table)
    whole = np.flatnonzero(table.seen & (happened(table) == size - 1))
    won_row, won = np.nonzero(table.gained)
    groups = {g.name: n for n, g in enumerate(report.domains)}
    of_run = np.array([groups.get(d, -1) for d in labels.domains], int)
    moved = np.array(report.advice.rows if report.advice else (), int)
    redrafts = labels.redrafts
    whole_steps = {
        "matrix": (np.r_[seen, whole], np.r_[cells[seen], np.full(len(whole), WHOLE)]),
        "ranks": (np.flatnonzero(rank), rank[rank > 0] - 1),
        "gains": (won_row, np.where(won == table.gained.shape[1] - 1, OTHER, won)),
        "moved": (moved, np.zeros(len(moved), int)),
        "second": (redrafts.scored_row, places(redrafts.confidence, uniform_edges())),
        "promise": (redrafts.row, gain_places(redrafts)),
        "domain": (np.arange(count), of_run[table.run]),
    }
    return {
        "positions": {name: _by_step(count, rows, own) for name, own in positions.items() if len(own) == len(rows)},
        "steps": {name: _by_row(count, *pairs) for name, pairs in whole_steps.items()} | {"head": head_places(table)},
    }


def _rank(table: StepTable) -> np.ndarray:
    """Returns the rank of the true boundary, from 1; 0 for none."""
    place = ranks(table.confidence, table.boundary)
    return np.where(table.partly & (place < table.confidence.shape[1]), place + 1, 0)


def _by_step(count: int, rows: np.ndarray, values: np.ndarray) -> list[list[Any]]:
    """The values of each of so many steps; ``rows`` in order."""
    starts, own = np.searchsorted(rows, np.arange(count + 1)).tolist(), values.tolist()
    return [own[a:b] for a, b in pairwise(starts)]


def head_places(table: StepTable) -> list[list[int]]:
    """Returns the confidence bins of each step's confidence head."""
    tables = trained_tables(table)
    if tables is None:
        return [[] for _ in range(len(table))]
    rows, at = np.nonzero(tables[1].scored)
    spoke = np.flatnonzero(~np.isnan(table.head).all(1))
    return _by_row(len(table), spoke[rows], places(tables[1].confidence[rows, at], uniform_edges()))


def _by_row(count: int, rows: np.ndarray, values: np.ndarray) -> list[list[int]]:
    """The different values of each of so many steps."""
    out: list[list[int]] = [[] for _ in range(count)]
    for row, value in sorted(set(zip(rows.tolist(), values.tolist(), strict=True))):
        out[row].append(value)
    return out
