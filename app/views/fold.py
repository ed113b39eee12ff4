"""A button that collapses a part of the page."""

from __future__ import annotations

from typing import Any

from app.view import View
from app.views.drawn import STATIC
from d2sd.figures.modules import view_script


class FoldView(View):
    """Toggles the class ``open`` of the element with the id ``folds``.

    Unlike in a closed ``gr.Accordion``, the content is in the page from the start: the style sheet decides where it is folded.
    """

    def __init__(self, name: str, folds: str, *, elem_id: str, **options: Any):
        super().__init__(
            None, view_script(STATIC / "fold.js", {}, {}), elem_id=elem_id, name=name, folds=folds, **options
        )
