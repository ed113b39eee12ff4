"""Plotly figures and HTML reports of calibrations and comparisons, and the viewer of whole runs."""

from __future__ import annotations

from d2sd.figures.calibration import CalibrationFigures, calibration_panels, calibration_results
from d2sd.figures.comparison import ComparisonResults, comparison_results
from d2sd.figures.report import report_page
from d2sd.figures.style import Panel
from d2sd.figures.viewer import show

__all__ = [
    "CalibrationFigures",
    "ComparisonResults",
    "Panel",
    "calibration_panels",
    "calibration_results",
    "comparison_results",
    "report_page",
    "show",
]
