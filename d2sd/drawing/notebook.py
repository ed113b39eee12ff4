"""The interactive view of a run in a notebook cell."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

from d2sd.drawing.viewer import standalone_page
from d2sd.errors import InputError
from d2sd.trace.run import RecordedRun
from d2sd.trace.trace import Trace, load_trace

HEIGHT = 900
# The page runs its own script and may save files; it reaches neither the notebook nor a network.
FRAME = (
    '<iframe sandbox="allow-scripts allow-downloads" referrerpolicy="no-referrer" srcdoc="{page}" title="{title}" '
    'style="width:100%;height:{height}px;border:0"></iframe>'
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A notebook's output: a self-contained page in a sandboxed frame of ``height`` pixels."""

    page: str
    title: str
    height: int

    def _repr_html_(self) -> str:
        return FRAME.format(page=html.escape(self.page), title=html.escape(self.title), height=self.height)


def show(trace: Trace | str | Path, step: int | None = None, height: int = HEIGHT) -> Shown:
    """Returns the interactive view of a run, for the last line of a notebook cell.

    trace: a run, or the path of its file.
    step: which one to open at, from 1 on; None: the first one.
    height: of the view, in pixels.

    Raises ``InputError``.
    """
    run = trace if isinstance(trace, Trace) else load_trace(trace)
    steps = len(run.steps)
    if step is not None and not 1 <= step <= steps:
        raise InputError(f"there is no step {step}; this trace has {steps}")
    title = f"{run.header['method']}, {steps} steps"
    page = standalone_page(RecordedRun.of(run.records()), title, None if step is None else step - 1)
    return Shown(page, title, height)
