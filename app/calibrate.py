"""From the controls of Calibrate to what it draws: the run in Explore, a prompt set, or uploaded traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from app import models, settings
from app.explore import failure_sentence
from app.recordings import Recording, Recordings
from app.run_lines import RunLines
from app.session import Session
from app.streaming import collect, paced, prepare, stream
from app.update import Update
from app.uploads import read_all, short
from app.views.calibrate import Progress, drawing
from d2sd import Event, InputError, Trace
from d2sd.bench.prompts import names, read_prompts

MAX_FILES = 200


def shown(recordings: Recordings, run: RunLines) -> str:
    """Measure the run that Explore shows. Raises ``InputError``."""
    traces = [run.trace()] if len(run) else []
    recordings.runs = [Recording.of(t) for t in traces]
    title = "The run in Explore: one text; a prompt set says more"
    return drawing(traces, [r.label for r in recordings.runs], Progress(title, len(traces), len(traces)))


def files(recordings: Recordings, paths: Sequence[str] | None) -> str:
    """Measure uploaded traces; the first that cannot be read raises ``InputError`` and nothing changes."""
    if not paths:
        raise InputError("choose one or more trace files first")
    if len(paths) > MAX_FILES:
        raise InputError(f"{len(paths)} files were chosen; at most {MAX_FILES} are read at once")
    traces = read_all([Path(p) for p in paths])
    runs = [Recording(short(Path(p).name), Path(p)) for p in paths]
    recordings.runs = runs
    title = runs[0].label if len(runs) == 1 else f"{len(runs)} trace files"
    return drawing(traces, [r.label for r in runs], Progress(title, len(runs), len(runs)))


def prompts(
    session: Session,
    number: int,
    recordings: Recordings,
    source: str,
    limit: float | None,
    chosen: models.Chosen,
    method: str,
    values: dict[str, Any],
) -> Iterator[Update[str]]:
    """Run a prompt set and yield what to draw after every prompt. On bad input the drawing stays.

    ``source`` is a bundled set; ``values``: settings by name. ``number`` is what ``session.request()`` gave; it stops
    once that is not the newest any more, and keeps the prompts that are finished.
    """

    def stale() -> bool:
        return session.newest != number

    if not session.claim(number):
        return
    try:
        count = settings.whole(limit, "how many")
        if count < 1:
            raise InputError(f"how many must be at least 1, not {count}")
        if source not in names():
            raise InputError(f"there is no prompt set {source}; choose one of: {', '.join(names())}")
        config = settings.config(method, values)
        asked = read_prompts(source, count)
        if not models.loaded(chosen):
            yield Update(news=f"Loading {chosen.model} …")
        prepared = [prepare(chosen, prompt.text, config) for prompt in asked]
    except InputError as error:
        yield Update(problem=settings.readable(error))
        return
    title = f"{len(asked)} prompts of {source} with {method}"
    traces: list[Trace] = []
    runs: list[Recording] = []

    def so_far(title: str, running: bool = False) -> str:
        return drawing(traces, [r.label for r in runs], Progress(title, len(runs), len(asked), running))

    yield Update(so_far(title, running=True))
    try:
        for one in prepared:
            events: list[Event] = []
            for _ in paced(collect(stream(one, stale), events)):
                yield Update()
            trace = Trace.of(one.engine.header(one.request), events)
            if stale():
                yield Update(so_far(f"{title}, stopped"))
                return
            traces.append(trace)
            runs.append(Recording.of(trace))
            recordings.runs = runs
            yield Update(so_far(title, running=len(runs) < len(asked)))
    except Exception as error:  # as in Explore
        yield Update(so_far(f"{title}, broken off"), problem=failure_sentence(error))
