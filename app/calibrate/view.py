"""The Calibrate view: can the drafter's confidence be trusted, and where does the boundary estimate go wrong?

The value is one JSON text: the sentences, the figures, and the marks of the figures that each step belongs to. A click on a mark
can therefore list its steps without the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from app.compare.compare import compared
from app.runs.recordings import Recording, RunSet
from app.view import FIGURES, DrawnView
from d2sd.calibration.listing import Measured
from d2sd.figures.calibration import calibration_results


class CalibrationView(DrawnView):
    """Draws what ``drawing`` returns. A click on a listed step fires ``select`` with ``run``, ``step`` and ``loaded``, the
    run that Explore shows."""

    def __init__(self, value: str | None = None, *, elem_id: str = "calibration", **options: Any):
        super().__init__(
            value,
            "calibrate/main.js",
            given=FIGURES,
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
    gathering = measured.gathering
    data = {
        "progress": asdict(progress),
        **calibration_results(gathering).to_dict(),
        **measured.listing(),
        "report": gathering.report().to_dict(),
        "runs": [{"label": r.label, "run": str(r.header.get("run", "")), "domain": r.domain} for r in runs],
        "against": compared(against, progress.title, gathering) if against and runs else None,
    }
    return orjson.dumps(data).decode()
