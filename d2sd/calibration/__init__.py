"""Can a drafter's confidence be trusted? Reliability, ECE, Brier score, boundary hits, gains, temperature advice.

``Gathering(traces).report()`` returns all figures of recorded runs; ``read_report`` summarizes them in sentences.
Intervals are 95% percentile bootstraps that resample whole prompts (``steps.units``); for a share of 0 or 1, Wilson's.
"""

from __future__ import annotations

from d2sd.calibration.alternatives import TrainedReport, compare_trained, read_trained
from d2sd.calibration.report import Gathering, Labels, Report, calibrate, label
from d2sd.calibration.resampling import Estimate
from d2sd.calibration.scores import (
    Bin,
    bin_gaps,
    expected_calibration_error,
    scored_positions,
    uniform_edges,
)
from d2sd.calibration.sentences import Sentence, read_report
from d2sd.calibration.steps import Paths, StepTable, tabulate, tabulate_paths

__all__ = [
    "Bin",
    "Estimate",
    "Gathering",
    "Labels",
    "Paths",
    "Report",
    "Sentence",
    "StepTable",
    "TrainedReport",
    "bin_gaps",
    "calibrate",
    "compare_trained",
    "expected_calibration_error",
    "label",
    "read_report",
    "read_trained",
    "scored_positions",
    "tabulate",
    "tabulate_paths",
    "uniform_edges",
]
