"""Calibration of drafters: reliability of the confidence, ECE, boundary hits, gains, temperature advice.

``calibrate(traces)`` returns all figures of recorded runs; ``read_report`` summarizes them in sentences.
Intervals are 95% percentile bootstrap intervals over whole prompts or, with few prompts, over blocks of steps (``steps.units``).
Bins, positions, and shares of 0 or 1 have Wilson intervals.
"""

from __future__ import annotations

from d2sd.calibration.report import Report, RunStatistics, calibrate
from d2sd.calibration.resampling import Estimate
from d2sd.calibration.scores import Bin
from d2sd.calibration.sentences import read_report
from d2sd.calibration.text import Sentence

__all__ = [
    "Bin",
    "Estimate",
    "Report",
    "RunStatistics",
    "Sentence",
    "calibrate",
    "read_report",
]
