"""Figures that grow while something goes on: checkpoint by checkpoint, or reading by reading."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from app.views.drawn import FIGURES, DrawnView
from d2sd.drawing.panels import Panel


class OverTimeView(DrawnView):
    """Draws what ``drawn`` returns."""

    def __init__(self, value: str | None = None, *, elem_id: str, **options: Any):
        super().__init__(value, "overtime", given=FIGURES, elem_id=elem_id, **options)


def drawn(reading: Iterable[str], panels: Iterable[Panel]) -> str:
    """Returns the view's value: sentences, then figures."""
    return orjson.dumps({"reading": list(reading), "panels": [p.to_dict() for p in panels]}).decode()
