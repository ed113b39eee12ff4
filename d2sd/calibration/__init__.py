"""Calibration of drafters: how well the confidence predicts acceptance, and how many tokens the drafts add.

``calibrate(traces)`` returns all figures of recorded runs; ``read_report`` summarizes them in sentences.
Intervals are 95% percentile bootstrap intervals over whole prompts or, with few prompts, over blocks of steps (``steps.units``).
The accepted shares of bins and of positions, and all shares of 0 or 1, have Wilson intervals instead.
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
