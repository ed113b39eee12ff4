"""One file with the runs of a window, to teach from offline or to open again later."""

from __future__ import annotations

import gzip
from collections.abc import Collection, Sequence

from app.method_names import said
from app.recordings import Recording
from app.uploads import MAX_MEGABYTES
from app.views.learn import speeds, tour_of, tours_page
from d2sd import InputError
from d2sd.drawing.viewer import PageRun
from d2sd.trace.run import RecordedRun

TITLE = "D²SD Explorer"
MAX_TITLE = 120  # characters
MAX_PAGE_MEGABYTES = 32  # of traces: the page is a fifth of that, and a browser opens it at once
MAX_TOUR_STEPS = 2000  # of one run: every step has nine stops


def window_file(runs: Sequence[Recording]) -> bytes:
    """Returns the traces of all runs, newest first, gzipped, as “Open a trace” reads them. Raises ``InputError``."""
    _check([kept.run for kept in runs], MAX_MEGABYTES)
    lines = (f"{line}\n" for kept in runs for line in kept.run.lines())
    return gzip.compress("".join(lines).encode("utf-8", "replace"), 6)


def class_page(
    runs: Sequence[Recording],
    shown: str = "",
    step: int | None = None,
    chosen: Collection[str] | None = None,
    title: str = "",
) -> str:
    """Returns a page that works offline: the runs, each with its quiz and the stops of Learn, numbered as in the list.

    runs: of the list, newest first; the oldest is number 1.
    shown: key of a run that opens with this ``step``.
    chosen: keys of the runs that the page has; None: all.
    title: of the page; empty: that of the application.

    Raises ``InputError``.
    """
    title = " ".join(title.split())
    if len(title) > MAX_TITLE:
        raise InputError(f"the title has {len(title)} characters; at most {MAX_TITLE} fit")
    numbered = list(enumerate(reversed(runs), 1))
    kept = [(n, k) for n, k in numbered if chosen is None or k.run.key in chosen]
    if numbered and not kept:
        raise InputError("no run is ticked; tick those that the class is to see")
    _check([k.run for _, k in kept], MAX_PAGE_MEGABYTES)
    pages = [
        PageRun(k.run, _label(k), step if k.run.key == shown else None, tour=_tour(k.run), number=n) for n, k in kept
    ]
    return tours_page(pages, title or TITLE)


def _label(kept: Recording) -> str:
    """Returns a run's label; runs of one prompt are distinguished by method."""
    return f"{said(kept.run.header)}: {kept.label}"


def hand_out(run: RecordedRun, step: int | None = None, node: int | str | None = None) -> str:
    """Returns an offline page of one run, opened at this step and node. Raises ``InputError``."""
    _check([run], MAX_PAGE_MEGABYTES)
    page = PageRun(run, step=step, node=node, tour=_tour(run))
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


def _check(runs: Sequence[RecordedRun], megabytes: int) -> None:
    """Raise ``InputError`` where a run is in progress, all are empty, or their traces are larger together."""
    size = 0
    for run in runs:
        if run.live:
            raise InputError("a run still goes on; wait for its end or stop it")
        size += sum(len(line) + 1 for line in run.lines())
        if size > megabytes * 10**6:
            way = (
                "remove some runs from the list first"
                if len(runs) > 1
                else "share it as JSONL, which “Open a trace” reads"
            )
            raise InputError(f"it would hold more than {megabytes} MB of traces; {way}")
    if not size:
        raise InputError("there is no run in the list yet")
