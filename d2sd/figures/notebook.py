"""The view of a run in a notebook cell, also while the run is generated."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d2sd.errors import require
from d2sd.figures.viewer import standalone_page
from d2sd.trace.run import RecordedRun
from d2sd.trace.stream import EventStream
from d2sd.trace.trace import Trace, load_trace

HEIGHT = 900
SECONDS = 0.3  # least time between two updates of a run that is generated
SHARE = 20  # the generation gets this many times the time of the updates
# The frame may run the page's script and save files. It has no access to the notebook or the network.
FRAME = (
    '<iframe sandbox="allow-scripts allow-downloads" referrerpolicy="no-referrer" srcdoc="{page}" title="{title}" '
    'style="width:100%;height:{height}px;border:0"></iframe>'
)


@dataclass(frozen=True, slots=True, repr=False)
class NotebookView:
    """The output of a notebook cell: a self-contained page in a sandboxed frame.

    trace: the run.
    page: HTML of the page.
    title: title of the frame.
    height: height of the frame in pixels.
    live: handle of the output that showed the run while it was generated, which this view replaces; None without one.
    """

    trace: Trace
    page: str
    title: str
    height: int
    live: Any = None

    def __repr__(self) -> str:
        return f"<view of {self.trace.totals}>"

    def _repr_html_(self) -> str:
        if self.live is not None:
            self.live.update({"text/html": ""}, raw=True)  # the frame takes its place
        return FRAME.format(page=html.escape(self.page), title=html.escape(self.title), height=self.height)


def show(trace: Trace | EventStream | str | Path, step: int | None = None, height: int = HEIGHT) -> NotebookView:
    """Returns the interactive view of a run, for the last line of a notebook cell. Its field ``trace`` is the run.

    A run that ``Engine.stream`` returned is first generated to its end. Meanwhile, a notebook shows its text and α.

    trace: a run, a run in progress, or the path of a trace file.
    step: the step to open, from 1; None: the most instructive one.
    height: height of the view in pixels.

    Raises ``InputError`` if the file is not a trace, or if the trace has no such step.
    """
    live = None
    if isinstance(trace, EventStream):
        live, trace = watch(trace), trace.trace
    run = trace if isinstance(trace, Trace) else load_trace(trace)
    steps = len(run.steps)
    require(step is None or 1 <= step <= steps, f"there is no step {step}; this trace has {steps} steps")
    title = f"{run.header['method']}, {steps} steps"
    page = standalone_page(RecordedRun.of(run.records()), title, None if step is None else step - 1)
    return NotebookView(run, page, title, height, live)


def watch(stream: EventStream, clock: Callable[[], float] = time.monotonic) -> Any:
    """Generates a run to its end, and shows its text and α in the output of a notebook cell a few times a second.

    clock: function that returns the time in seconds.

    Returns the handle of the output; None outside of a notebook.
    """
    handle, due = _new_output(), clock()
    with closing(stream):
        for _ in stream:
            if handle is not None and (start := clock()) >= due:
                handle.update(stream.trace)
                now = clock()
                due = now + max(SECONDS, SHARE * (now - start))
    if handle is not None:
        handle.update(stream.trace)
    return handle


def _new_output() -> Any:
    """Returns the handle of a new output of the running cell; None outside of a notebook whose outputs can be updated."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display({"text/html": ""}, raw=True, display_id=True)
