"""The Calibrate view: can the drafter's confidence be trusted, and where does the boundary estimate go wrong?

The value is one JSON text: the reading, the figures, and for every step what places it in the charts, so that a click
on a bar or a cell lists its steps without asking the server.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import orjson

from app.compare import RunSet, compared
from app.recordings import Recording
from app.views.drawn import STATIC, DrawnView
from d2sd import Trace
from d2sd.calibration import Labels, Paths, StepTable, calibrate, label, read_report, tabulate, tabulate_paths
from d2sd.calibration.decisions import promised
from d2sd.calibration.outcomes import happened, predicted, ranks
from d2sd.calibration.redrafts import gain_places
from d2sd.calibration.scores import equal_mass_edges, places, uniform_edges
from d2sd.calibration.splits import KINDS
from d2sd.calibration.steps import UNSEEN
from d2sd.trace.events import StepDone
from d2sd.trace.metrics import prediction

SCRIPTS = (
    "chart.js",
    "columns.js",
    *sorted(f"charts/{path.name}" for path in (STATIC / "calibrate" / "charts").glob("*.js")),
    "../compare/differences.js",
    "../compare/curves.js",
    "against.js",
    "summary.js",
    "members.js",
    "download.js",
    "main.js",
)
MAX_CHARACTERS = 24


class CalibrationView(DrawnView):
    """Draws what ``drawing`` returns. A click on a listed step fires ``select`` with ``run``, ``step`` and ``loaded``, the
    run that Explore shows."""

    def __init__(self, value: str | None = None, *, elem_id: str = "calibration", **options: Any):
        super().__init__(value, "calibrate", SCRIPTS, elem_id=elem_id, sheets=("compare",), **options)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a measurement has come: ``done`` of ``total`` runs."""

    title: str
    done: int
    total: int
    running: bool = False


def drawing(
    traces: Sequence[Trace], runs: Sequence[Recording], progress: Progress, against: RunSet | None = None
) -> str:
    """What the view draws for these runs, each a trace and its recording; ``against``: others to compare them with."""
    steps = [t.steps for t in traces]
    table, paths = tabulate(steps, [t.prompt for t in traces]), tabulate_paths(steps)
    labels = label(steps, table, [r.domain for r in runs])
    report = calibrate(table, paths, labels)
    data = {
        "progress": asdict(progress),
        "reading": [asdict(s) for s in read_report(report)],
        "report": report.to_dict(),
        "promised": None if (kept := promised(s for t in traces for s in t.steps)) is None else asdict(kept),
        "runs": [
            {"label": r.label, "run": str(t.header.get("run", "")), "domain": r.domain}
            for t, r in zip(traces, runs, strict=True)
        ],
        "other": table.nodes.shape[1] - 1,
        "steps": step_columns(table, [s for run in steps for s in run], labels, paths if report.of_paths else None),
        "kinds": KINDS,
        "against": compared(against, RunSet(progress.title, tuple(traces))) if against and traces else None,
    }
    return orjson.dumps(data).decode()


def step_columns(
    table: StepTable, steps: Sequence[StepDone], labels: Labels, paths: Paths | None = None
) -> dict[str, list[Any]]:
    """Per step: run, step, matched (how many scored positions were right, −1: nothing was drafted; of ``paths``, which then
    are what is scored, how many were accepted), drafted, what was predicted and what happened (outcomes as in the
    matrix), rank of the true boundary (from 1; 0: none); of its scored positions the confidences, the bins (uniform,
    equal mass), kinds (of ``paths`` none), depths, tokens and nodes; the token that the target wanted at the first
    rejection; what came of the prediction (see ``d2sd.trace.metrics.prediction``; empty: nothing); the drafts that brought
    tokens; of its re-drafts the bins of the scored confidences and of what was promised."""
    matched = table.matched
    if paths is None:
        rows, at = np.nonzero(table.scored)
        confidence, depths = table.confidence[rows, at], at + 1
    else:
        rows, confidence, depths = paths.row, paths.probability, paths.depth
        matched = np.full(len(table), UNSEEN)
        matched[rows] = 0
        matched += np.bincount(rows, weights=paths.accepted, minlength=len(table)).astype(int)
    starts = np.searchsorted(rows, np.arange(len(table) + 1)).tolist()

    def by_step(values: list[Any]) -> list[list[Any]]:
        return [values[a:b] for a, b in itertools.pairwise(starts)]

    place = ranks(table.confidence, table.boundary)
    rank = np.where(table.partly & (place < table.confidence.shape[1]), place + 1, 0)
    won_row, won = np.nonzero(table.gained)
    won_at = np.searchsorted(won_row, np.arange(len(table) + 1)).tolist()
    counts = [b - a for a, b in itertools.pairwise(starts)]
    if paths is None:
        nodes = [_nodes(s, n) for s, n in zip(steps, counts, strict=True)]
        tokens = [_texts(s, n) for s, n in zip(steps, counts, strict=True)]
    else:
        nodes = by_step(paths.node.tolist())
        tokens = [[_cut(s.nodes[n].text) for n in own] for s, own in zip(steps, nodes, strict=True)]
    redrafts = labels.redrafts
    return {
        "run": table.run.tolist(),
        "step": table.step.tolist(),
        "matched": matched.tolist(),
        "drafted": table.drafted.tolist(),
        "predicted": predicted(table).tolist(),
        "happened": np.where(table.seen, happened(table), -1).tolist(),
        "rank": rank.tolist(),
        "confidence": by_step(confidence.round(4).tolist()),
        "uniform": by_step(places(confidence, uniform_edges()).tolist()),
        "equal_mass": by_step(places(confidence, equal_mass_edges(confidence)).tolist()),
        "kind": by_step(labels.kinds.tolist()),
        "second": _by_row(len(table), redrafts.scored_row, places(redrafts.confidence, uniform_edges())),
        "promise": _by_row(len(table), redrafts.row, gain_places(redrafts)),
        "depths": by_step(depths.tolist()),
        "tokens": tokens,
        "nodes": nodes,
        "wanted": [_wanted(s, b) for s, b in zip(steps, table.boundary.tolist(), strict=True)],
        "outcome": [prediction(s) or "" for s in steps],
        "won": [won[a:b].tolist() for a, b in itertools.pairwise(won_at)],
    }


def _by_row(count: int, rows: np.ndarray, values: np.ndarray) -> list[list[int]]:
    """The different values of each of so many steps."""
    out: list[list[int]] = [[] for _ in range(count)]
    for row, value in sorted(set(zip(rows.tolist(), values.tolist(), strict=True))):
        out[row].append(value)
    return out


def _texts(step: StepDone, count: int) -> list[str]:
    return [_cut(t) for t in step.first_draft.texts[:count]] if step.first_draft else []


def _nodes(step: StepDone, count: int) -> list[int]:
    """The tree nodes of the first ``count`` tokens of the first draft; shorter where the tree leaves them out."""
    found, parent, nodes = [], 0, step.nodes
    for token in step.first_draft.ids[:count] if step.first_draft else ():
        here = parent + 1  # where a tree that begins with the first draft has it
        if here >= len(nodes) or nodes[here].parent != parent or nodes[here].token != token:
            here = next((n.id for n in nodes if n.parent == parent and n.token == token), 0)
        if not here:
            break
        found.append(here)
        parent = here
    return found


def _wanted(step: StepDone, boundary: int) -> str:
    """The target's own token where the first draft ends, if that was seen."""
    return _cut(step.committed[boundary].text) if 0 <= boundary < len(step.committed) else ""


def _cut(text: str) -> str:
    return text.encode("utf-8", "replace").decode()[:MAX_CHARACTERS]
