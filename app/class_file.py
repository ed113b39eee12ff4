"""The runs of a window in one file: to teach with, without this page, or to open here another day."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

from app.history import KeptRun
from app.method_names import NAMES
from app.uploads import MAX_MEGABYTES
from app.views.learn import tour_of, tour_script
from d2sd import InputError
from d2sd.drawing.viewer import PageRun, runs_page

MAX_CLASS_MEGABYTES = 32  # of traces: the page is a tenth of that, and a browser opens it at once


def window_file(runs: Sequence[KeptRun]) -> bytes:
    """The traces of all runs, the newest first, gzipped, as “Open a trace” reads them. Raises ``InputError``."""
    return gzip.compress("".join(_traces(runs, MAX_MEGABYTES)).encode("utf-8", "replace"), 6)


def class_page(runs: Sequence[KeptRun], shown: str = "", step: int | None = None) -> str:
    """A page that works offline: the runs in the order in which they were made, each with its quiz and the stops of Learn.

    ``shown``: key of a run that opens with this ``step``. Raises ``InputError``.
    """
    traces = _traces(runs, MAX_CLASS_MEGABYTES)
    pages = [
        PageRun(trace, _label(kept), step if kept.run.key == shown else None, tour=_tour(kept))
        for kept, trace in zip(runs, traces, strict=True)
    ]
    return runs_page(pages[::-1], "D²SD Explorer", tour_script())


def _label(kept: KeptRun) -> str:
    """Runs of one prompt are told apart by their methods."""
    method = str(kept.run.header.get("method", ""))
    return f"{NAMES.get(method, method[:40])}: {kept.label}"


def _tour(kept: KeptRun) -> str:
    """Where a log holds no tokens there is nothing to take a tour of."""
    trace = kept.run.trace()
    return (
        tour_of(trace)
        if trace.steps and all(len(step.nodes) > 1 or not step.first_draft for step in trace.steps)
        else ""
    )


def _traces(runs: Sequence[KeptRun], megabytes: int) -> list[str]:
    traces, size = [], 0
    for kept in runs:
        if kept.run.live:
            raise InputError("a run still goes on; wait for its end or stop it")
        traces.append("".join(f"{line}\n" for line in kept.run.lines()))
        size += len(traces[-1])
        if size > megabytes * 10**6:
            raise InputError(f"the runs together hold more than {megabytes} MB; remove some from the list first")
    if not any(traces):
        raise InputError("there is no run in the list yet")
    return traces
