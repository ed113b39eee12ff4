"""Controller of Explore: starts a run and streams its trace lines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from app import models, settings
from app.links import MAX_PROMPT, Link
from app.models import Chosen
from app.page_session import Session
from app.run_lines import RunLines
from app.streaming import Prepared, collect, paced, prepare, stream, warm_up
from app.visitors import without_paths
from app.work import Update
from d2sd import DecodeConfig, Event, Finished, InputError, StepDone
from d2sd.errors import first_line
from d2sd.trace.metrics import Totals, totals
from d2sd.trace.writer import to_line

log = logging.getLogger(__name__)
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
        """Returns the configuration; raises ``InputError``, also for a prompt that is too long for the page."""
        if len(self.prompt) > MAX_PROMPT:
            raise InputError(f"the prompt has {len(self.prompt)} characters; the page reads at most {MAX_PROMPT}")
        return settings.config(self.method, self.settings)


def run(session: Session, number: int, asked: Asked) -> Iterator[Update[str]]:
    """Run, record in the session and yield new segments. On bad input the shown run stays.

    ``number`` is what ``session.request()`` gave for this run; it stops once that is not the newest any more.
    """

    def stale() -> bool:
        return session.newest != number

    if not session.claim(number):
        return
    try:
        config = asked.config()
        if not models.loaded(asked.models):
            yield Update(news=f"Loading {asked.models.model} …")
        prepared = prepare(asked.models, asked.prompt, config)
        header = prepared.engine.header(prepared.request)
        if wait := prepared.engine.first_use(prepared.request.config.backend):
            yield Update(news=wait)
    except InputError as error:
        yield Update(problem=settings.readable(error))
        return
    link = session.link if session.link.fits(header) else Link()
    shown = session.shown = RunLines(live=True)
    shown.append([to_line(header)])
    session.history.keep(shown, "Explore")
    lines = _lines(prepared, asked.compare, stale)
    sent, last = 0, 0.0
    note = on_drafters(prepared)
    try:
        yield Update(shown.segment(wanted=link.wanted), note=note)  # at once: the run before it must not pass for it
        sent = len(shown)
        for kind, line in lines:
            shown.append([line])
            note = note if kind != "Finished" else f"{note} {link.other_text(shown)}".strip()
            # out of sight it goes on for the list; shown again, the page takes what it lacks
            new = bool(line) and session.shown is shown
            if (not new or kind == "StepDone") and time.monotonic() - last < SECONDS_BETWEEN_YIELDS:
                continue
            yield Update(shown.segment(sent) if new else None, note=note)
            sent, last = len(shown) if new else sent, time.monotonic()
    except Exception as error:  # whatever it was, the person is told and the page goes on
        sentence = failure_sentence(error)
        shown.append([to_line({"event": "Failed", "sentence": sentence})])
        yield Update(shown.segment(sent) if session.shown is shown else None, problem=sentence)
    finally:
        shown.live = False
        lines.close()


def _lines(run: Prepared, compare: bool, stop: Callable[[], bool]) -> Generator[tuple[str, str], None, None]:
    """Yields the lines of a run after its header, each with its kind; last its speedup, if requested.
    While work goes on that writes no line there are empty ones."""
    finished = None
    for _ in paced(warm_up(run, stop)):
        yield "", ""
    for event in stream(run, stop):
        finished = event if isinstance(event, Finished) else None
        yield type(event).__name__, to_line(event)
    if not compare or finished is None or finished.stop_reason == "stopped" or run.request.config.method == PLAIN:
        return
    seen: tuple[list[Totals], list[Totals]] = [], []
    for _ in paced(_timed(run, max(1, len(finished.token_ids)), stop, seen)):
        yield "", ""
    if not stop():
        again, plain = (sum(t.tokens for t in mine) / max(1e-9, sum(t.seconds for t in mine)) for mine in seen)
        yield "Baseline", to_line({"event": "Baseline", "tokens_per_second": plain, "unwatched": again})


def _timed(
    run: Prepared, tokens: int, stop: Callable[[], bool], seen: tuple[list[Totals], list[Totals]]
) -> Iterator[None]:
    """Time this run and plain decoding in turns, without drawing or inspection; ``seen`` receives the totals of each.

    A run that is watched shares the processor with what draws it, on a small machine with the browser as well.
    """
    config = replace(run.request.config, inspect=False, max_new_tokens=tokens)
    plain = replace(config, method=PLAIN, block_size=None, second_block_size=None, node_budget=None)
    pair = [replace(run, request=replace(run.request, config=c)) for c in (config, plain)]
    began = time.monotonic()
    for _ in range(MAX_ROUNDS):
        for prepared, mine in zip(pair, seen, strict=True):
            yield from warm_up(prepared, stop)
            events: list[Event] = []
            yield from collect(stream(prepared, stop), events)
            mine.append(totals(e for e in events if isinstance(e, StepDone)))
        if stop() or time.monotonic() - began > SECONDS_OF_ROUNDS:
            break


def on_drafters(run: Prepared) -> str:
    """Returns warnings about a run's drafters, as sentences."""
    return without_paths(" ".join(f"{n[:1].upper()}{n[1:]}." for n in run.engine.models.notes()))


def failure_sentence(error: Exception) -> str:
    """Returns one sentence for a run that failed; unexpected errors are logged as well."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "The run stopped: there was not enough memory. Ask for fewer tokens or a shorter prompt."
    if not isinstance(error, InputError):
        log.warning("a run broke off", exc_info=error)
    return without_paths(f"The run stopped: {first_line(error, 200)}")
