"""The trace viewer: JavaScript and CSS that draw a run, for the page and for HTML files.

The sources are in ``assets/viewer``. Model text enters the document only as text nodes.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from d2sd.figures.modules import html_page, join_modules, view_script
from d2sd.figures.style import VIEWER
from d2sd.trace.events import to_line
from d2sd.trace.run import Message, Origin, RecordedRun

STYLES = ("colours.css", "parts.css", "explorer.css", "drawing.css", "presenter.css", "pays.css")
SUBTITLES = ("A recorded run of speculative decoding.", "Recorded runs of speculative decoding.")
CUT_OFF = {"event": "Failed", "sentence": "The recording ends here: the run was cut off."}
STANDALONE = VIEWER / "standalone.js"


def viewer_styles() -> str:
    return _joined(STYLES)


@cache
def viewer_script() -> str:
    """Returns the viewer as the script of a Gradio component.

    The script adds the style sheet to the page. Gradio's ``css_template`` is not used for it, since Gradio evaluates that on every
    change of the value, and so restyles the whole page several times a second during a run.
    """
    return view_script(VIEWER / "main.js", {"explorer-style": viewer_styles()}, {})


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join((VIEWER / name).read_text(encoding="utf-8") for name in names)


class PageRun(NamedTuple):
    """A run of a standalone page.

    label: name of the run in the list of runs.
    step: index of the step to open; None for the most instructive one.
    node: the node to select in that step.
    tour: data of the tour that the Learn tab gives through the run; empty if there is no tour.
    number: number of the run in links; if it is 0, the run's place in the list, counted from 1.
    """

    run: RecordedRun
    label: str = ""
    step: int | None = None
    node: int | str | None = None
    tour: str = ""
    number: int = 0

    def value(self, key: str) -> str:
        """Returns the run as text in the viewer's input format. key: identifies the run on the page."""
        selected = None if self.step is None else Message("select", {"step": self.step, "node": self.node})
        value = self.run.segment(0, selected, Origin(recorded=True), key)
        return value if self.run.ended else value + to_line(CUT_OFF)


def standalone_page(run: RecordedRun, title: str, step: int | None = None, node: int | str | None = None) -> str:
    """Returns a self-contained HTML file of one run (see ``runs_page``). step, node: as in ``PageRun``."""
    return runs_page([PageRun(run, step=step, node=node)], title)


def runs_page(
    runs: Sequence[PageRun],
    title: str,
    entry: Path = STANDALONE,
    styles: str = "",
    options: Mapping[str, Any] | None = None,
) -> str:
    """Returns a self-contained HTML file of one or more runs.

    Fields after ``#`` in the file's address select a view: ``#run=2&step=10&node=7`` (runs and steps are numbered from 1),
    ``chapter=4``, ``quiz=1``, ``draft=1`` or ``embed=1``. Runs are embedded as JSON without ``<``, and the page's security policy
    allows only the script in the file.

    entry: the module whose ``start`` draws the page. A module other than the default can add tours.
    styles: CSS in addition to the viewer's.
    options: argument of ``start``, passed as JSON.
    """
    shown = [
        {"label": run.label, "value": run.value(f"run {n}"), "tour": run.tour, "number": run.number or n}
        for n, run in enumerate(runs, 1)
    ]
    script = f"\n{join_modules(entry)}.start({_inert(dict(options or {}))});\n"
    body = f"""<header><h1>{html.escape(title)}</h1><p>{SUBTITLES[len(runs) > 1]} Press ? for the glossary and the keys.</p><nav id="runs"></nav></header>
<main><div id="explorer"><noscript>This page needs JavaScript to draw the run.</noscript></div><div id="tour" hidden></div></main>
<script type="application/json" id="trace">{_inert(shown)}</script>
"""
    return html_page(title, f"{_joined(('standalone.css',))}{viewer_styles()}{styles}", body, [script])


def _inert(data: Any) -> str:
    """Returns data as JSON without ``<``, which an HTML parser could take for markup."""
    return json.dumps(data).replace("<", "\\u003c")
