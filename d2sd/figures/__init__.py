"""Calibrations and comparisons as plotly figures and HTML reports, and the viewer that draws whole runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from d2sd.__about__ import lazy_names

if TYPE_CHECKING:
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
_HOMES = {
    "d2sd.figures.calibration": ("CalibrationFigures", "calibration_panels", "calibration_results"),
    "d2sd.figures.comparison": ("ComparisonResults", "comparison_results"),
    "d2sd.figures.report": ("report_page",),
    "d2sd.figures.style": ("Panel",),
    "d2sd.figures.viewer": ("show",),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
