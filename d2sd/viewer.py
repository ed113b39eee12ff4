"""The viewer of traces: hand-written JavaScript and CSS that draw a run, for the page and for files.

All drawing is in ``assets/viewer``; model text reaches the document through text nodes only.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

VIEWER = Path(__file__).resolve().parent.parent / "assets" / "viewer"
STYLES = ("colours.css", "explorer.css", "drawing.css")
# In the order in which they need each other; main.js defines start().
SCRIPTS = (
    "dom.js",
    "words.js",
    "step.js",
    "store.js",
    "selection.js",
    "explain.js",
    "tooltip.js",
    "viewport.js",
    "tree_layout.js",
    "tree_shapes.js",
    "tree_rows.js",
    "tree.js",
    "strip.js",
    "details.js",
    "timeline.js",
    "text.js",
    "search.js",
    "numbers.js",
    "legend.js",
    "help.js",
    "keyboard.js",
    "picture.js",
    "share.js",
    "main.js",
)


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join((VIEWER / name).read_text(encoding="utf-8") for name in names)


@cache
def viewer_script() -> str:
    """The viewer as one function scope, started on ``element`` with ``trigger``, ``props`` and ``watch``.

    The style sheet is added once from here: Gradio evaluates a ``css_template`` again on every change of the value,
    which would restyle the whole page several times a second during a stream.
    """
    return f"""(() => {{
"use strict";
{_joined(SCRIPTS)}
const sheet = document.getElementById("explorer-style") || document.head.appendChild(h("style", {{ id: "explorer-style" }}));
sheet.textContent = {json.dumps(_joined(STYLES))};
start(element, trigger, props, watch);
}})();"""
