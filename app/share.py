"""Exports of the shown run that are made on the server: GraphML of a step, and a standalone page.

The other formats (JSON lines, SVG, PNG) are made in the browser from what it has.
"""

from __future__ import annotations

from typing import Any

import gradio as gr
import networkx

from app.class_file import hand_out
from app.gradio_internals import told
from app.inputs import step_number
from app.jobs import sentence
from app.page_session import Session
from d2sd import METHODS, InputError
from d2sd.trace.graph import step_graph
from d2sd.trace.run import RecordedRun


def export(session: Session, data: gr.EventData) -> tuple[Any, Any]:
    """Returns the requested file as a segment without lines, and a notice."""
    asked = told(data)
    try:
        file = make_file(session.shown, asked.get("kind"), asked.get("step"), asked.get("node"))
    except InputError as error:
        return gr.skip(), sentence(problem=f"The file was not made: {error}.")
    return session.shown.note(file=file), sentence()


def make_file(run: RecordedRun, kind: Any, step: Any, node: Any = None) -> dict[str, str]:
    """Returns ``name``, ``type`` and ``text`` of a file; a page opens at ``step`` and ``node``. Raises ``InputError``."""
    step = step_number(step)
    node = node if node == "bonus" or (isinstance(node, int) and 0 <= node < 10**9) else None
    if not len(run):
        raise InputError("the server has no run of this window any more; run it again")
    method = run.header.get("method")
    name = f"d2sd-{method if method in METHODS else 'run'}"
    if kind == "html":
        return {
            "name": f"{name}.html",
            "type": "text/html",
            "text": hand_out(run, step, node),
        }
    if kind == "graphml" and step is not None:
        trace = run.trace()
        if step >= len(trace.steps):
            raise InputError(f"this run has no step {step + 1}")
        return {
            "name": f"{name}-step-{step + 1}.graphml",
            "type": "application/xml",
            "text": "\n".join(networkx.generate_graphml(step_graph(trace.steps[step]))),
        }
    raise InputError("there is no such file")
