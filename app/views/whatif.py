"""The what-if view: α and nodes per step against one setting at a time."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import orjson

from app.lanes import method_of, name_of, recorded
from app.views.drawn import FIGURES, DrawnView
from app.whatif import SWEEPS, Answers, Varied, values
from d2sd import METHODS
from d2sd.calibration.comparison import length_difference
from d2sd.costs.machines import MACHINES
from d2sd.drawing.compared_panels import sweep_panels
from d2sd.drawing.sweeps import Line, Point, Recorded, Sweep


class WhatIfView(DrawnView):
    """Draws what ``Drawn.value`` returns."""

    def __init__(self, value: str | None = None, *, elem_id: str = "whatif", **options: Any):
        super().__init__(value, "whatif", given=FIGURES, elem_id=elem_id, **options)


class Drawn(msgspec.Struct, frozen=True):
    """The answers as the view draws them and as a recording stores them: the measured run, the number of ``tokens`` of its
    text, and a sweep for every setting that was varied."""

    source: str
    status: str
    recorded: bool
    tokens: int
    run: Recorded
    sweeps: tuple[Sweep, ...]

    def value(self) -> str:
        """The value of the view: a figure for every sweep."""
        measured = f"{self.tokens} tokens; as run: α {self.run.alpha:.2f}, {self.run.nodes:.1f} nodes per step"
        shown = {"source": self.source, "status": self.status, "recorded": self.recorded, "measured": measured}
        panels = sweep_panels(self.sweeps, self.run)
        return orjson.dumps({**shown, "panels": [p.to_dict() for p in panels]}).decode()


def drawn(answers: Answers) -> Drawn:
    """Returns the drawn form of the answers so far."""
    totals, base = answers.trace.totals, answers.base
    run = Recorded(name_of(base.method, base.cost_aware), totals.mean_acceptance_length, totals.nodes_per_step)
    asked = {q.sweep for q in answers.questions}
    sweeps = tuple(_sweep(answers, varied) for varied in SWEEPS.values() if varied.name in asked)
    return Drawn(answers.source, answers.status, answers.recorded, totals.tokens, run, sweeps)


def _sweep(answers: Answers, varied: Varied) -> Sweep:
    known = values(varied, answers.base)
    own = getattr(answers.base, varied.name)
    recorded = [len(step.committed) for step in answers.trace.steps]
    points: dict[str, list[Point]] = {}
    for question in answers.questions:
        outcome = answers.outcomes.get(question.config)
        if question.sweep == varied.name and outcome is not None:
            found = length_difference(recorded, outcome.committed)
            points.setdefault(question.lane, []).append(
                Point(
                    known.index(question.value),
                    outcome.mean_acceptance_length,
                    outcome.nodes_per_step,
                    found.b.low,
                    found.b.high,
                    found.difference.low,
                    found.difference.high,
                    {name: gain for name, m in MACHINES.items() if (gain := outcome.speedup(m)) is not None},
                )
            )
    return Sweep(
        varied.symbol,
        varied.label,
        tuple("all" if v is None else str(v) for v in known),
        known.index(own) if own in known and varied.name in METHODS[answers.base.method].settings else None,
        tuple(Line(lane, varied.name not in METHODS[method_of(lane)].settings, tuple(p)) for lane, p in points.items()),
    )


@cache
def recorded_answers() -> str | None:
    """Returns the panel's initial value, which was recorded with the race; None if there is none."""
    answers = recorded().get("whatif")
    return msgspec.convert(answers, Drawn).value() if answers else None
