"""Views that are drawn by their own JavaScript: the component that carries it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from app.views.view import View
from d2sd.drawing.colours import VIEWER

STATIC = Path(__file__).resolve().parent.parent / "static"
SHARED = (VIEWER / "dom.js", VIEWER / "words.js", VIEWER / "tooltip.js", VIEWER / "cost.js")
COLOURS = VIEWER / "colours.css"
PANELS = STATIC / "shared" / "panels.css"


class DrawnView(View):
    """Draws its value, a JSON text, with the scripts of one folder of ``app/static``.

    The scripts share one function scope, whose ``start(element, trigger, props, watch, server)`` is called once.
    The style sheet is added to the page by the script.
    """

    def __init__(
        self,
        value: str | None,
        folder: str,
        scripts: Sequence[str],
        *,
        elem_id: str,
        before: str = "",
        sheets: Sequence[str] = (),
        server_functions: list[Callable[..., Any]] | None = None,
        **options: Any,
    ):
        """``before``: more code for the scope, ahead of the scripts; ``sheets``: other folders whose style sheets it needs;
        ``options``: those of ``gr.HTML``."""
        script = drawn_script(folder, tuple(scripts), before, tuple(sheets))
        super().__init__(value, script, elem_id=elem_id, server_functions=server_functions, **options)


@cache
def drawn_script(folder: str, scripts: tuple[str, ...], before: str = "", sheets: tuple[str, ...] = ()) -> str:
    """Scripts and style sheets of a view as one function scope."""
    parts = [read(p) for p in (*SHARED, *(STATIC / folder / s for s in scripts))]
    # What all share goes into the page once, ahead of the rest, so that every folder's own rules win over it.
    rules = {
        "panels-style": read(COLOURS).replace(".explorer", ".panels") + read(PANELS),
        **{f"{name}-style": read(STATIC / name / f"{name}.css") for name in (*sheets, folder)},
    }
    return f"""(() => {{
"use strict";
{before}
{chr(10).join(parts)}
for (const [id, rules] of Object.entries({json.dumps(rules)})) {{
  if (!document.getElementById(id)) document.head.append(h("style", {{ id }}, rules));
}}
start(element, trigger, props, watch, server);
}})();"""


def read(path: Path) -> str:
    """A source file of the page."""
    return path.read_text(encoding="utf-8")
