"""Does a drafter's confidence deserve trust? Reliability, ECE, Brier score, boundary hits, gains, temperature advice.

``calibrate(tabulate(runs))`` gives every figure of recorded runs; ``read_report`` puts them into plain sentences.
Intervals are 95% percentile bootstraps that draw whole prompts again (``steps.units``); of a share that is none or all
of them, Wilson's.
"""

from __future__ import annotations

from d2sd.calibration.reading import Sentence, read_report
from d2sd.calibration.report import Labels, Report, calibrate, label
from d2sd.calibration.resampling import Figure
from d2sd.calibration.scores import (
    Bin,
    expected_calibration_error,
    scored_positions,
    uniform_edges,
)
from d2sd.calibration.steps import StepTable, tabulate

__all__ = [
    "Bin",
    "Figure",
    "Labels",
    "Report",
    "Sentence",
    "StepTable",
    "calibrate",
    "expected_calibration_error",
    "label",
    "read_report",
    "scored_positions",
    "tabulate",
    "uniform_edges",
]
