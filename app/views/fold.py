"""A button that folds a part of the page away where there is little room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.views.view import View

SCRIPT = Path(__file__).resolve().parent.parent / "static" / "fold.js"


class FoldView(View):
    """Toggles the class ``open`` of the element with the id ``folds``.

    Unlike in a closed ``gr.Accordion``, the content is in the page from the start: the style sheet decides where it is folded.
    """

    def __init__(self, name: str, folds: str, *, elem_id: str, **options: Any):
        super().__init__(None, SCRIPT.read_text(encoding="utf-8"), elem_id=elem_id, name=name, folds=folds, **options)
