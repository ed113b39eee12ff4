"""Files that the server makes: GraphML of a step, a page of the shown run, and files of all runs of a window.

The browser makes the other formats: JSON lines, SVG and PNG.
"""

from __future__ import annotations

import gzip
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from app.gradio_internals import event_fields
from app.guard import step_number
from app.jobs import sentence
from app.learn.tab import tour_of, tours_page
from app.methods import run_title
from app.runs.recordings import MAX_MEGABYTES, Recording
from app.session import Session
from d2sd.errors import InputError, require
from d2sd.figures.viewer import PageRun
from d2sd.trace.graph import graph
from d2sd.trace.run import Message, RecordedRun

TITLE = "D²SD Explorer"
MAX_TITLE = 120  # characters
MAX_PART = 40  # characters of each part of a file name
PROMPT_WORDS = 3
PLAIN_WORD = re.compile(r"[a-z0-9]+")
MAX_PAGE_MEGABYTES = 32  # maximum size of a page's traces; the page is a fifth as large, so browsers open it quickly


def window_file(runs: Sequence[Recording]) -> bytes:
    """Returns the traces of all runs as a gzip file for “Open a trace”, newest first. Raises ``InputError``."""
    _check([recording.run for recording in runs], MAX_MEGABYTES)
    lines = (f"{line}\n" for recording in runs for line in recording.run.lines())
    return gzip.compress("".join(lines).encode("utf-8", "replace"), 6)


def class_page(
    runs: Sequence[Recording],
    shown: str,
    step: int | None,
    chosen: Collection[str] | None = None,
    title: str = "",
) -> str:
    """Returns an offline page of runs, numbered as in the list. Each run has a quiz and the chapters of Learn.

    runs: runs of the list, newest first; the oldest is number 1.
    shown: key of the run that opens at ``step``.
    chosen: keys of the runs to include; None: all.
    title: title of the page; empty: name of the application.

    Raises ``InputError`` if the title or the traces are too long, or no run can be included.
    """
    title = " ".join(title.split())
    require(len(title) <= MAX_TITLE, f"the title has {len(title)} characters; at most {MAX_TITLE} are allowed")
    numbered = list(enumerate(reversed(runs), 1))
    listed = [(n, k) for n, k in numbered if chosen is None or k.run.key in chosen]
    require(listed or not numbered, "no run is ticked; tick the runs for the class")
    _check([k.run for _, k in listed], MAX_PAGE_MEGABYTES)
    pages = [
        # the method distinguishes runs of the same prompt
        PageRun(
            k.run,
            f"{run_title(k.header)}: {k.label}",
            step if k.run.key == shown else None,
            tour=_tour(k.run),
            number=n,
        )
        for n, k in listed
    ]
    return tours_page(pages, title or TITLE)


def hand_out(run: RecordedRun, step: int | None = None, node: int | str | None = None) -> str:
    """Returns an offline page of one run that opens at this step and node. Raises ``InputError`` if it is too large."""
    _check([run], MAX_PAGE_MEGABYTES)
    return tours_page([PageRun(run, step=step, node=node, tour=_tour(run))], TITLE)


def _tour(run: RecordedRun) -> str:
    """Returns the tour of a run; empty for a log without tokens."""
    trace = run.trace()
    complete = trace.steps and all(len(step.nodes) > 1 or not step.first_draft for step in trace.steps)
    return tour_of(trace) if complete else ""


def _check(runs: Sequence[RecordedRun], megabytes: int) -> None:
    """Raise ``InputError`` if a run is in progress, all runs are empty, or the traces together have more than ``megabytes``."""
    size = 0
    for run in runs:
        require(not run.live, "a run is still in progress; wait for its end or stop it")
        size += sum(len(line) + 1 for line in run.lines())
        if size > megabytes * 10**6:
            way = (
                "remove some runs from the list first"
                if len(runs) > 1
                else "share it as JSONL, which “Open a trace” reads"
            )
            raise InputError(f"it would contain more than {megabytes} MB of traces; {way}")
    require(size, "there is no run in the list yet")


def file_name(header: Mapping[str, Any]) -> str:
    """Returns a file name without suffix, in lower-case letters and digits: method, model and the first words of the prompt.

    header: header of the run; it may be hostile.
    """
    named = header.get("models")
    model = named.get("preset") or named.get("target") if isinstance(named, Mapping) else None
    parts = [
        header.get("method"),
        Path(f"{model or ''}").name,
        " ".join(f"{header.get('prompt') or ''}"[:400].split()[:PROMPT_WORDS]),
    ]
    plain = (unicodedata.normalize("NFKD", f"{part or ''}").lower() for part in parts)
    words = ("-".join(PLAIN_WORD.findall(part))[:MAX_PART].strip("-") for part in plain)
    return "-".join(filter(None, words)) or "run"


def export(session: Session, data: gr.EventData) -> tuple[Any, Any]:
    """Returns the requested file as a message to the view, and a notice."""
    fields = event_fields(data)
    try:
        file = make_file(session.shown, fields.get("kind"), fields.get("step"), fields.get("node"))
    except InputError as error:
        return gr.skip(), sentence(problem=f"The file was not made: {error}.")
    return session.shown.message(Message("file", file)), sentence()


def make_file(run: RecordedRun, kind: Any, step: Any, node: Any) -> dict[str, str]:
    """Returns ``name``, ``type`` and ``text`` of a file. An HTML file opens at ``step`` and ``node``. Raises ``InputError``."""
    step = step_number(step)
    node = node if node == "bonus" or (isinstance(node, int) and 0 <= node < 10**9) else None
    require(len(run), "the server no longer has a run of this window; run it again")
    name = file_name(run.header)
    if kind == "html":
        return {"name": f"{name}.html", "type": "text/html", "text": hand_out(run, step, node)}
    if kind == "graphml" and step is not None:
        import networkx

        trace = run.trace()
        require(step < len(trace.steps), f"this run has no step {step + 1}")
        return {
            "name": f"{name}-step-{step + 1}.graphml",
            "type": "application/xml",
            "text": "\n".join(networkx.generate_graphml(graph(trace.steps[step]))),
        }
    raise InputError("this kind of file does not exist")
