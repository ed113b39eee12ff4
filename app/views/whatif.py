"""The what-if view: α and nodes per step against one setting at a time."""

from __future__ import annotations

from typing import Any

import orjson

from app.lanes import method_of, name_of
from app.views.drawn import FIGURES, DrawnView
from app.whatif import SWEEPS, Answers, Sweep, values
from d2sd import METHODS
from d2sd.calibration import Figure
from d2sd.calibration.comparison import length_difference
from d2sd.costs.known import MACHINES
from d2sd.drawing.compared_panels import sweep_panels
from d2sd.drawing.whatif import Line, Point, Recorded
from d2sd.drawing.whatif import Sweep as SweepData


class WhatIfView(DrawnView):
    """Draws what ``drawing`` returns."""

    def __init__(self, value: str | None = None, *, elem_id: str = "whatif", **options: Any):
        super().__init__(value, "whatif", given=FIGURES, elem_id=elem_id, **options)


def drawing(answers: Answers) -> str:
    """What the view draws: a figure for every setting that was varied, of the points that are answered."""
    return drawn(answered(answers))


def drawn(data: dict[str, Any]) -> str:
    """The same, of what ``answered`` returned."""
    run = data["run"]
    asked = f"{data['tokens']} tokens; as run: α {run['alpha']:.2f}, {run['nodes']:.1f} nodes per step"
    shown = {name: data[name] for name in ("source", "status", "recorded")} | {"measured": asked}
    panels = sweep_panels([_figure_data(s) for s in data["sweeps"]], Recorded(**run))
    return orjson.dumps({**shown, "panels": [p.to_dict() for p in panels]}).decode()


def _figure_data(sweep: dict[str, Any]) -> SweepData:
    lines = [
        Line(
            line["method"],
            line["flat"],
            tuple(
                Point(at, Figure(alpha, low, high), nodes, Figure(None, less, more), speedups)
                for at, alpha, nodes, low, high, less, more, speedups in line["points"]
            ),
        )
        for line in sweep["lines"]
    ]
    return SweepData(sweep["symbol"], sweep["label"], tuple(sweep["values"]), sweep["own"], tuple(lines))


def answered(answers: Answers) -> dict[str, Any]:
    """The answers as plain data, and the measured figures of the run itself.

    Per sweep: its values and, per method, the answered points. A point is [place of the value, α, nodes per step, interval of
    α, interval of α less the recorded run's, speedup by known machine].
    """
    totals = answers.trace.totals
    asked = {q.sweep for q in answers.questions}
    return {
        "source": answers.source,
        "status": answers.status,
        "recorded": answers.recorded,
        "tokens": totals.tokens,
        "run": {
            "method": name_of(answers.base.method, answers.base.cost_aware),
            "alpha": totals.mean_acceptance_length,
            "nodes": totals.nodes_per_step,
        },
        "sweeps": [_sweep(answers, sweep) for sweep in SWEEPS.values() if sweep.name in asked],
    }


def _sweep(answers: Answers, sweep: Sweep) -> dict[str, Any]:
    known = values(sweep, answers.base)
    own = getattr(answers.base, sweep.name)
    recorded = [len(step.committed) for step in answers.trace.steps]
    lines: dict[str, list[tuple[Any, ...]]] = {}
    for question in answers.questions:
        outcome = answers.outcomes.get(question.config)
        if question.sweep == sweep.name and outcome is not None:
            found = length_difference(recorded, outcome.committed)
            point = (known.index(question.value), outcome.mean_acceptance_length, outcome.nodes_per_step)
            interval = (found.b.low, found.b.high, found.difference.low, found.difference.high)
            priced = {name: gain for name, m in MACHINES.items() if (gain := outcome.speedup(m)) is not None}
            lines.setdefault(question.lane, []).append((*point, *interval, priced))
    return {
        "symbol": sweep.symbol,
        "label": sweep.label,
        "values": ["all" if v is None else str(v) for v in known],
        "own": known.index(own) if own in known and sweep.name in METHODS[answers.base.method].settings else None,
        "lines": [
            {"method": lane, "flat": sweep.name not in METHODS[method_of(lane)].settings, "points": points}
            for lane, points in lines.items()
        ],
    }
