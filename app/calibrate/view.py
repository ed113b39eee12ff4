"""The Calibrate view: can the drafter's confidence be trusted, and where does the boundary estimate go wrong?

The value is one JSON text: the sentences, the figures, and the marks of the figures that each step belongs to. A click on a mark
can therefore list its steps without the server.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import orjson

from app.calibrate.measured import Measured, StepWords
from app.compare.compare import compared
from app.runs.recordings import Recording, RunSet
from app.view import FIGURES, DrawnView
from d2sd.calibration import (
    Labels,
    Paths,
    Report,
    StepTable,
    read_report,
)
from d2sd.calibration.boundaries import gain_places, happened, predicted, ranks
from d2sd.calibration.scores import equal_mass_edges, places, uniform_edges
from d2sd.calibration.steps import UNSEEN
from d2sd.calibration.trained import trained_tables
from d2sd.figures.calibration import OTHER, WHOLE
from d2sd.figures.panels import calibration_panels, headline


class CalibrationView(DrawnView):
    """Draws what ``drawing`` returns. A click on a listed step fires ``select`` with ``run``, ``step`` and ``loaded``, the
    run that Explore shows."""

    def __init__(self, value: str | None = None, *, elem_id: str = "calibration", **options: Any):
        super().__init__(
            value,
            "calibrate/main.js",
            constants=FIGURES,
            sheets=("compare/compare.css", "calibrate/calibrate.css"),
            elem_id=elem_id,
            **options,
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a measurement: ``done`` of ``total`` runs."""

    title: str
    done: int
    total: int
    running: bool = False


def drawing(measured: Measured, runs: Sequence[Recording], progress: Progress, against: RunSet | None = None) -> str:
    """Returns the view's value for these runs, as measured and as recorded; ``against``: others to compare them with."""
    gathering, words = measured.gathering, measured.words
    counted, report = gathering.counted(), gathering.report()
    table, labels = counted.table, counted.labels
    paths = counted.paths if report.of_paths else None
    marks = step_places(table, report, labels, paths)
    marks["steps"]["head"] = head_places(table, counted.head)
    data = {
        "progress": asdict(progress),
        "reading": [asdict(s) for s in read_report(report)],
        "stats": [asdict(s) for s in headline(report, counted.expected)],
        "panels": [p.to_dict() for p in calibration_panels(report, gathering.trained())],
        "report": report.to_dict(),
        "runs": [{"label": r.label, "run": str(r.header.get("run", "")), "domain": r.domain} for r in runs],
        "steps": step_columns(table, words, paths),
        "places": marks,
        "against": compared(against, progress.title, gathering) if against and runs else None,
    }
    return orjson.dumps(data).decode()


def scored(table: StepTable, paths: Paths | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The scored positions, or where given the ``paths`` that are scored instead: rows of their steps, confidences and depths."""
    if paths is not None:
        return paths.row, paths.probability, paths.depth
    rows, at = np.nonzero(table.scored)
    return rows, table.confidence[rows, at], at + 1


def step_columns(table: StepTable, words: Sequence[StepWords], paths: Paths | None = None) -> dict[str, list[Any]]:
    """Returns the columns of the list of steps, one entry per step.

    * run, step: where it is.
    * matched: scored positions (or ``paths``, where given) that were accepted; −1: nothing was drafted.
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
        "steps": {name: _by_row(count, *pairs) for name, pairs in whole_steps.items()},
    }


def _rank(table: StepTable) -> np.ndarray:
    """Returns the rank of the true boundary, from 1; 0 for none."""
    place = ranks(table.confidence, table.boundary)
    return np.where(table.partly & (place < table.confidence.shape[1]), place + 1, 0)


def _by_step(count: int, rows: np.ndarray, values: np.ndarray) -> list[list[Any]]:
    """The values of each of so many steps; ``rows`` in order."""
    starts, own = np.searchsorted(rows, np.arange(count + 1)).tolist(), values.tolist()
    return [own[a:b] for a, b in itertools.pairwise(starts)]


def head_places(table: StepTable, head: np.ndarray) -> list[list[int]]:
    """Returns the confidence bins of each step's confidence head."""
    tables = trained_tables(table, head)
    if tables is None:
        return [[] for _ in range(len(table))]
    rows, at = np.nonzero(tables[1].scored)
    spoke = np.flatnonzero(~np.isnan(head).all(1))
    return _by_row(len(table), spoke[rows], places(tables[1].confidence[rows, at], uniform_edges()))


def _by_row(count: int, rows: np.ndarray, values: np.ndarray) -> list[list[int]]:
    """The different values of each of so many steps."""
    out: list[list[int]] = [[] for _ in range(count)]
    for row, value in sorted(set(zip(rows.tolist(), values.tolist(), strict=True))):
        out[row].append(value)
    return out
