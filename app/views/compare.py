"""The Compare view: what differs between two sides, their curves, and their texts place by place."""

from __future__ import annotations

from typing import Any

import orjson

from app.compare.compare import compared, side_by_side
from app.runs.recordings import RunSet
from app.views.drawn import FIGURES, DrawnView


class CompareView(DrawnView):
    """Draws what ``drawing`` returns. ``select`` with ``side`` (0 or 1), ``run`` and ``step`` asks for a step in Explore."""

    def __init__(self, value: str | None = None, *, elem_id: str = "compare-view", **options: Any):
        super().__init__(
            value, "compare/main.js", given=FIGURES, sheets=("compare/compare.css",), elem_id=elem_id, **options
        )


def drawing(a: RunSet, b: RunSet) -> str:
    """Returns the view's value for two sides."""
    return orjson.dumps({**compared(a, b.title, b.gathering), "pairs": side_by_side(a, b)}).decode()
