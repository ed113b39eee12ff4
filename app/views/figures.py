"""What the views share that show plotly figures: the script that draws them, and panels as data for it."""

from __future__ import annotations

import json
from functools import cache

from app.plotly_js import ADDRESS
from d2sd.drawing.colours import COLOURS, VIEWER


@cache
def figures_script() -> str:
    """``FigureView`` and what it needs to know of the server."""
    script = (VIEWER / "figures.js").read_text(encoding="utf-8")
    return f"const LIGHT = {json.dumps(COLOURS)}, PLOTLY = {json.dumps(ADDRESS)};\n{script}"
