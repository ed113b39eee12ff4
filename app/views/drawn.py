"""The base component of views that are drawn by their own JavaScript."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.plotly_js import ADDRESS
from app.view import View
from d2sd.drawing.colours import COLOURS, VIEWER
from d2sd.figures.modules import view_script

STATIC = Path(__file__).resolve().parent.parent / "static"
FIGURES = {"colours": COLOURS, "plotly": ADDRESS}  # what figures.js needs to know


class DrawnView(View):
    """Draws its value, a JSON text, with the script of one folder of ``app/static``: ``start`` of its ``main.js``."""

    def __init__(
        self,
        value: str | None,
        folder: str,
        *,
        elem_id: str,
        given: Mapping[str, Any] | None = None,
        sheets: Sequence[str] = (),
        server_functions: list[Callable[..., Any]] | None = None,
        **options: Any,
    ):
        """``given``: values for the script; ``sheets``: other folders whose style sheets it needs; ``options``: those of
        ``gr.HTML``."""
        script = view_script(STATIC / folder / "main.js", panel_sheets(*sheets, folder), given or {})
        super().__init__(value, script, elem_id=elem_id, server_functions=server_functions, **options)


def panel_sheets(*folders: str) -> dict[str, str]:
    """Style sheets by element id: what all views share, then those of these folders, whose rules win over it."""
    viewer = read(VIEWER / "colours.css") + read(VIEWER / "map.css")
    shared = viewer.replace(".explorer", ".panels") + read(STATIC / "shared" / "panels.css")
    return {"panels-style": shared, **{f"{name}-style": read(STATIC / name / f"{name}.css") for name in folders}}


def read(path: Path) -> str:
    """Returns a source file of the page."""
    return path.read_text(encoding="utf-8")
