"""The viewer of traces: hand-written JavaScript and CSS that draw a run, for the page and for files.

All drawing is in ``assets/viewer``; model text reaches the document through text nodes only.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from functools import cache

from d2sd.__about__ import HOME
from d2sd.drawing.viewer_lines import Judge, pack_line

VIEWER = HOME / "assets" / "viewer"
STYLES = ("colours.css", "explorer.css", "drawing.css", "presenter.css")
STEP = '{"event":"StepDone"'
END = re.compile(r'\{"event":\s*"(Finished|Failed)"')
CUT_OFF = '{"event":"Failed","sentence":"The recording ends here: the run was cut off."}'
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
    "columns.js",
    "tree_layout.js",
    "tree_shapes.js",
    "tree_rows.js",
    "tree_paths.js",
    "tree.js",
    "strip.js",
    "details.js",
    "timeline.js",
    "finder.js",
    "text.js",
    "search.js",
    "cost.js",
    "numbers.js",
    "legend.js",
    "help.js",
    "panes.js",
    "quiz.js",
    "presenter.js",
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


def standalone_page(trace_lines: str, title: str, step: int | None = None, node: int | str | None = None) -> str:
    """One HTML file with style, script and data in it, which opens from a disk without a network.

    ``trace_lines`` is a trace as JSON lines; ``step`` (from 0) and ``node`` are what it opens with, unless its address names
    others (``#step=10&node=7``, steps from 1). Nothing in it can become markup or code: it stands in a block that is not
    a script, as a JSON string without ``<``, and the page's policy allows this one script and no connection at all.
    """
    # not splitlines(): JSON may hold U+2028 and the like unescaped
    lines = [line for line in trace_lines.split("\n") if line]
    if not any(map(END.match, lines)):
        lines.append(CUT_OFF)
    judge = Judge()
    shown = [pack_line(line) if line.startswith(STEP) else line.rstrip("\n") for line in judge.lines(lines)]
    head = {"event": "Segment", "key": "standalone", "from": 0, "recorded": True, "instructive": judge.instructive}
    if step is not None:
        head["wanted"] = {"step": step, "node": node}
    value = "\n".join([json.dumps(head), *shown, ""])
    data = json.dumps(value).replace("<", "\\u003c")
    script = f"\n{_joined(('standalone.js',))}\n{viewer_script()}\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src blob:; base-uri 'none'; form-action 'none'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{html.escape(title)}</title>
<style>
{_joined(("standalone.css",))}</style>
</head>
<body>
<header><h1>{html.escape(title)}</h1><p>A recorded run of speculative decoding. Press ? for the keys.</p></header>
<main id="explorer"><noscript>This page draws the run with JavaScript.</noscript></main>
<script type="application/json" id="trace">{data}</script>
<script>{script}</script>
</body>
</html>
"""
