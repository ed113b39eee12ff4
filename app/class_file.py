"""One file with the runs of a window, to teach from offline or to open again later."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

from app.method_names import said
from app.recordings import Recording
from app.uploads import MAX_MEGABYTES
from app.views.learn import speeds, tour_of, tours_page
from d2sd import InputError
from d2sd.drawing.viewer import PageRun
from d2sd.trace.run import RecordedRun

TITLE = "D²SD Explorer"
MAX_PAGE_MEGABYTES = 32  # of traces: the page is a fifth of that, and a browser opens it at once
MAX_TOUR_STEPS = 2000  # of one run: every step has nine stops


def window_file(runs: Sequence[Recording]) -> bytes:
    """Returns the traces of all runs, newest first, gzipped, as “Open a trace” reads them. Raises ``InputError``."""
    traces = _traces([kept.run for kept in runs], MAX_MEGABYTES)
    return gzip.compress("".join(traces).encode("utf-8", "replace"), 6)


def class_page(runs: Sequence[Recording], shown: str = "", step: int | None = None) -> str:
    """Returns a page that works offline: the runs in order of creation, each with its quiz and the stops of Learn.

    ``shown``: key of a run that opens with this ``step``. Raises ``InputError``.
    """
    traces = _traces([kept.run for kept in runs], MAX_PAGE_MEGABYTES)
    pages = [
        PageRun(trace, _label(kept), step if kept.run.key == shown else None, tour=_tour(kept.run))
        for kept, trace in zip(runs, traces, strict=True)
    ]
    return tours_page(pages[::-1], TITLE)


def _label(kept: Recording) -> str:
    """Returns a run's label; runs of one prompt are distinguished by method."""
    return f"{said(kept.run.header)}: {kept.label}"


def hand_out(run: RecordedRun, step: int | None = None, node: int | str | None = None) -> str:
    """Returns an offline page of one run, opened at this step and node. Raises ``InputError``."""
    (trace,) = _traces([run], MAX_PAGE_MEGABYTES)
    page = PageRun(trace, step=step, node=node, tour=_tour(run))
    return tours_page([page], TITLE)


def _tour(run: RecordedRun) -> str:
    """Returns the tour of a run; empty for a log without tokens."""
    trace = run.trace()
    if not 0 < len(trace.steps) <= MAX_TOUR_STEPS:
        return ""
    return (
        tour_of(trace, speeds(run.lines())[0])
        if all(len(step.nodes) > 1 or not step.first_draft for step in trace.steps)
        else ""
    )


def _traces(runs: Sequence[RecordedRun], megabytes: int) -> list[str]:
    traces, size = [], 0
    for run in runs:
        if run.live:
            raise InputError("a run still goes on; wait for its end or stop it")
        traces.append("".join(f"{line}\n" for line in run.lines()))
        size += len(traces[-1])
        if size > megabytes * 10**6:
            way = (
                "remove some runs from the list first"
                if len(runs) > 1
                else "share it as JSONL, which “Open a trace” reads"
            )
            raise InputError(f"it would hold more than {megabytes} MB of traces; {way}")
    if not any(traces):
        raise InputError("there is no run in the list yet")
    return traces
