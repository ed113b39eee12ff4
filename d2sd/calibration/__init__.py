"""Can a drafter's confidence be trusted? Reliability, ECE, boundary hits, gains, temperature advice.

``Gathering(traces).report()`` returns all figures of recorded runs; ``read_report`` summarizes them in sentences.
Intervals are 95% percentile bootstraps that resample whole prompts (``steps.units``); for a share of 0 or 1, Wilson's.
"""

from __future__ import annotations

from d2sd.calibration.report import Gathering, Report, calibrate
from d2sd.calibration.resampling import Estimate
from d2sd.calibration.scores import Bin
from d2sd.calibration.sentences import Sentence, read_report
from d2sd.calibration.steps import tabulate, tabulate_paths, tabulate_redrafts

__all__ = [
    "Bin",
    "Estimate",
    "Gathering",
    "Report",
    "Sentence",
    "calibrate",
    "read_report",
    "tabulate",
    "tabulate_paths",
    "tabulate_redrafts",
]
