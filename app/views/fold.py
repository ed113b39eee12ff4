"""A button that folds a part of the page away where there is little room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

SCRIPT = Path(__file__).resolve().parent.parent / "static" / "fold.js"


class FoldView(gr.HTML):
    """Toggles the class ``open`` of the element with the id ``folds``. Unlike a closed ``gr.Accordion``, what it folds
    is in the page from the start, so that the style sheet alone decides where it is folded."""

    def __init__(self, name: str, folds: str, *, elem_id: str, **options: Any):
        super().__init__(
            None,
            html_template="<div></div>",
            js_on_load=SCRIPT.read_text(encoding="utf-8"),
            apply_default_css=False,
            elem_id=elem_id,
            name=name,
            folds=folds,
            **options,
        )

    def get_block_name(self) -> str:
        """The page draws it as any ``gr.HTML``."""
        return "html"
