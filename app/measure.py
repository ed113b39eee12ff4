"""From the controls of Calibrate to what it draws: the run in Explore, a prompt set, or uploaded traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from app import presets
from app.controller import failure_sentence, whole
from app.recordings import Recording, Recordings, read_shown, read_upload, short
from app.session import Session
from app.views.calibration import Progress, drawing
from d2sd import DecodeConfig, InputError, Trace
from d2sd.bench.prompts import read_prompts

MOST_FILES = 200


def shown(recordings: Recordings, value: str | None) -> str:
    """Measure the run that Explore shows. Raises ``InputError``."""
    trace = read_shown(value)
    traces = [trace] if trace else []
    recordings.runs = [Recording.of(t) for t in traces]
    title = "The run in Explore: one text; a prompt set says more"
    return drawing(traces, [r.label for r in recordings.runs], Progress(title, len(traces), len(traces)))


def files(recordings: Recordings, paths: Sequence[str] | None) -> str:
    """Measure uploaded traces; the first that cannot be read raises ``InputError`` and nothing changes."""
    if not paths:
        raise InputError("choose one or more trace files first")
    if len(paths) > MOST_FILES:
        raise InputError(f"{len(paths)} files were chosen; at most {MOST_FILES} are read at once")
    traces = [read_upload(Path(p)) for p in paths]
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
    model: str,
    method: str,
    num_branches: float | None,
    temperature: float | None,
    max_new_tokens: float | None,
) -> Iterator[tuple[str | None, str]]:
    """Run a prompt set and yield (what to draw, notice) after every prompt. On bad input what to draw is None.

    ``number`` is what ``session.request()`` gave; it stops once that is not the newest any more, and keeps the
    prompts that are finished.
    """

    def stale() -> bool:
        return session.newest != number

    if not session.claim(number):
        return
    try:
        count = whole(limit, "prompts")
        if count < 1:
            raise InputError(f"prompts must be at least 1, not {count}")
        config = DecodeConfig(
            method=method,
            max_new_tokens=whole(max_new_tokens, "tokens each"),
            num_branches=whole(num_branches, "branches K"),
            temperature=float(temperature if temperature is not None else -1),
        )
        chosen = read_prompts(source, count)
        engine = presets.engine(model or "")
        for prompt in chosen:
            engine.encode(prompt.text, engine.resolve(config))
    except InputError as error:
        yield None, f"{error}"
        return
    title = f"{len(chosen)} prompts of {source} with {method}"
    traces: list[Trace] = []
    runs: list[Recording] = []
    yield drawing([], [], Progress(title, 0, len(chosen), running=True)), ""
    try:
        for prompt in chosen:
            header = engine.header(prompt.text, config)
            trace = Trace.of(header, engine.stream(prompt.text, config, stop=stale))
            if stale():
                break
            traces.append(trace)
            runs.append(Recording.of(trace))
            recordings.runs = runs
            going = len(runs) < len(chosen)
            yield _so_far(traces, runs, title, len(chosen), going), ""
        else:
            return
        yield _so_far(traces, runs, f"{title}, stopped", len(chosen), False), ""
    except (MemoryError, RuntimeError) as error:
        yield _so_far(traces, runs, f"{title}, broken off", len(chosen), False), failure_sentence(error)


def _so_far(traces: list[Trace], runs: list[Recording], title: str, total: int, running: bool) -> str:
    return drawing(traces, [r.label for r in runs], Progress(title, len(runs), total, running))
