"""The base component of views that are drawn by their own JavaScript."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.plotly_js import ADDRESS
from app.view import View
from d2sd.drawing.colours import COLOURS, VIEWER
from d2sd.figures.modules import view_script

APP = Path(__file__).resolve().parent.parent
STATIC = APP / "static"
FIGURES = {"colours": COLOURS, "plotly": ADDRESS}  # what figures.js needs to know


class DrawnView(View):
    """Draws its value, a JSON text, with ``start`` of a script of ``app``."""

    def __init__(
        self,
        value: str | None,
        script: str,
        *,
        elem_id: str,
        given: Mapping[str, Any] | None = None,
        sheets: Sequence[str] = (),
        server_functions: list[Callable[..., Any]] | None = None,
        **options: Any,
    ):
        """
        script: path of the entry module in ``app``.
        given: values for the script.
        sheets: paths of its style sheets in ``app``.
        options: those of ``gr.HTML``.
        """
        joined = view_script(APP / script, panel_sheets(*sheets), given or {})
        super().__init__(value, joined, elem_id=elem_id, server_functions=server_functions, **options)


def panel_sheets(*sheets: str) -> dict[str, str]:
    """Style sheets by element id: what all views share, then these of ``app``, whose rules win over it."""
    viewer = read(VIEWER / "colours.css") + read(VIEWER / "map.css")
    shared = viewer.replace(".explorer", ".panels") + read(STATIC / "shared" / "panels.css")
    return {"panels-style": shared, **{f"{Path(sheet).stem}-style": read(APP / sheet) for sheet in sheets}}


def read(path: Path) -> str:
    """Returns a source file of the page."""
    return path.read_text(encoding="utf-8")
