"""Controller of Explore: starts a run and streams its trace lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from app import models, settings
from app.jobs import Job, Update, failure_sentence
from app.links import MAX_PROMPT, Link
from app.models import Chosen
from app.session import Session
from app.streaming import Prepared, Recorder, paced, prepare, stream, warm_up
from app.visitors import without_paths
from d2sd import DecodeConfig, Event, Finished, InputError, StepDone
from d2sd.trace.metrics import Totals
from d2sd.trace.run import RecordedRun

SECONDS_BETWEEN_YIELDS = 1 / 6
PLAIN = "autoregressive"
# A short run is timed more than once against plain decoding: as often as fits into so many seconds.
MAX_ROUNDS = 3
SECONDS_OF_ROUNDS = 0.25


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: the values of the controls."""

    prompt: str
    models: Chosen
    method: str
    compare: bool
    settings: dict[str, Any]

    def config(self) -> DecodeConfig:
        """Returns the configuration. Raises ``InputError``, also if the prompt is too long for the page."""
        if len(self.prompt) > MAX_PROMPT:
            raise InputError(f"the prompt has {len(self.prompt)} characters; the page reads at most {MAX_PROMPT}")
        return settings.config(self.method, self.settings)


def run(session: Session, job: Job, asked: Asked) -> Iterator[Update[str]]:
    """Run, record in the session and yield new segments. On invalid input the shown run stays. Raises ``InputError``."""
    config = asked.config()
    if not models.loaded(asked.models):
        yield Update(news=f"Loading {asked.models.model} …")
    prepared = prepare(asked.models, asked.prompt, config)
    header = prepared.engine.header(prepared.request)
    if wait := prepared.engine.first_use(prepared.request.config.backend):
        yield Update(news=wait)
    link = session.link if session.link.fits(header) else Link()
    shown = session.shown = RecordedRun(live=True)
    shown.append([header])
    session.history.keep(shown, "Explore")
    lines = _lines(prepared, asked.compare, job.cancelled)
    sent, last = 0, 0.0
    note = on_drafters(prepared)
    try:
        yield Update(shown.segment(wanted=link.wanted), note=note)  # at once: the run before it must not pass for it
        sent = len(shown)
        for line in lines:
            shown.append([] if line is None else [line])
            note = f"{note} {link.other_text(shown)}".strip() if isinstance(line, Finished) else note
            # out of sight it goes on for the list; shown again, the page takes what it lacks
            new = line is not None and session.shown is shown
            if (not new or isinstance(line, StepDone)) and time.monotonic() - last < SECONDS_BETWEEN_YIELDS:
                continue
            yield Update(shown.segment(sent) if new else None, note=note)
            sent, last = len(shown) if new else sent, time.monotonic()
    except Exception as error:  # the run keeps the sentence too
        sentence = failure_sentence(error)
        shown.append([{"event": "Failed", "sentence": sentence}])
        yield Update(shown.segment(sent) if session.shown is shown else None, problem=sentence)
    finally:
        shown.live = False
        lines.close()


def _lines(
    run: Prepared, compare: bool, stop: Callable[[], bool]
) -> Generator[Event | dict[str, Any] | None, None, None]:
    """Yields the trace lines of a run after its header, and last its speedup, if requested. Yields None during work that
    adds no line."""
    finished = None
    for _ in paced(warm_up(run, stop)):
        yield None
    for event in stream(run, stop):
        finished = event if isinstance(event, Finished) else None
        yield event
    if not compare or finished is None or finished.stop_reason == "stopped" or run.request.config.method == PLAIN:
        return
    seen: tuple[list[Totals], list[Totals]] = [], []
    for _ in paced(_timed(run, max(1, len(finished.token_ids)), stop, seen)):
        yield None
    if not stop():
        again, plain = (sum(t.tokens for t in mine) / max(1e-9, sum(t.seconds for t in mine)) for mine in seen)
        yield {"event": "Baseline", "tokens_per_second": plain, "unwatched": again}


def _timed(
    run: Prepared, tokens: int, stop: Callable[[], bool], seen: tuple[list[Totals], list[Totals]]
) -> Iterator[None]:
    """Time this run and plain decoding alternately, without drawing or inspection, and append the totals of each to ``seen``.

    A run that is drawn shares the processor with the drawing code, and on a small machine with the browser.
    """
    config = replace(run.request.config, inspect=False, max_new_tokens=tokens)
    plain = replace(config, method=PLAIN, block_size=None, second_block_size=None, node_budget=None)
    pair = [replace(run, request=replace(run.request, config=c)) for c in (config, plain)]
    began = time.monotonic()
    for _ in range(MAX_ROUNDS):
        for prepared, mine in zip(pair, seen, strict=True):
            yield from warm_up(prepared, stop)
            recorder = Recorder(prepared, stop)
            yield from recorder
            mine.append(recorder.trace().totals)
        if stop() or time.monotonic() - began > SECONDS_OF_ROUNDS:
            break


def on_drafters(run: Prepared) -> str:
    """Returns warnings about a run's drafters, as sentences."""
    return without_paths(" ".join(f"{n[:1].upper()}{n[1:]}." for n in run.engine.models.notes()))
