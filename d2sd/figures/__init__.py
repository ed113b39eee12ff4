"""Plotly figures and HTML reports of calibrations and comparisons, and the interactive viewer of a run."""

from __future__ import annotations

from d2sd.figures.calibration import CalibrationFigures, calibration_panels, calibration_results
from d2sd.figures.intervals import differences_panel
from d2sd.figures.notebook import show
from d2sd.figures.report import report_page
from d2sd.figures.style import Panel

__all__ = [
    "CalibrationFigures",
    "Panel",
    "calibration_panels",
    "calibration_results",
    "differences_panel",
    "report_page",
    "show",
]
