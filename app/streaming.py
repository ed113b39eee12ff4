"""Executes runs, on this machine or on a ZeroGPU Space, which provides a GPU for one run at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Event as Flag
from typing import Any, TypeVar

from app import models
from app.jobs import Update
from app.machine import ON_ZERO_GPU, on_gpu
from app.visitors import without_paths
from d2sd import DecodeConfig, Engine, Event, StepDone, Trace
from d2sd.costs.runs import ThreadShare
from d2sd.engine import Request
from d2sd.folders.model_sets import ModelSet

SECONDS_BETWEEN_PAUSES = 0.5
Item = TypeVar("Item")
WARM_UP_TOKENS = 16
# All runs use one thread. They take turns anyway, and torch keeps a pool of threads for every thread that calls it.
_worker = ThreadPoolExecutor(1, "engine")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A validated run. ``chosen``: the run's models, from which another process can load the engine."""

    chosen: ModelSet
    engine: Engine
    request: Request

    def warnings(self) -> str:
        return without_paths(" ".join(f"{note[:1].upper()}{note[1:]}." for note in self.engine.models.notes()))


def announce_loading(chosen: ModelSet) -> Iterator[Update[Any]]:
    if not models.loaded(chosen):
        yield Update(news=f"Loading {chosen.name} …")


def prepare_run(chosen: ModelSet, prompt: str, config: DecodeConfig) -> Prepared:
    """Loads the models if needed, and returns the validated run. Raises ``InputError``.

    γ is reduced to the longest block of the drafters, since the form may still contain the γ of other drafters.
    """
    engine = models.engine(chosen)
    if (longest := engine.longest_block(config.method)) is not None:
        gamma, redrafted = (size and min(size, longest) for size in (config.block_size, config.second_block_size))
        config = replace(config, block_size=gamma, second_block_size=redrafted)
    return Prepared(chosen, engine, engine.request(prompt, config))


def never() -> bool:
    """Returns False, as a ``stop`` that never stops. Unlike a closure, it can be pickled for the process with the GPU."""
    return False


def stream(run: Prepared, stop: Callable[[], bool], share: ThreadShare | None = None) -> Generator[Event, None, None]:
    """Yields the events of a run, which ends before the next step if ``stop`` returns True.

    share: measures how long the run's thread computes. Used only on a CPU, since with a GPU the thread mostly waits.
    """
    if not ON_ZERO_GPU:
        events, on_cpu = run.engine.run(run.request, stop), run.engine.models.target.device.type == "cpu"
        yield from on_worker(share.watched(events) if share is not None and on_cpu else events)
        return
    for event in _elsewhere(run.chosen, run.request):
        yield event
        if stop():
            raise RuntimeError("stopped by you")


@on_gpu
def _elsewhere(chosen: ModelSet, request: Request) -> Generator[Event, None, None]:
    yield from models.engine(chosen).run(request, never)


def first_tokens(run: Prepared, stop: Callable[[], bool]) -> Generator[None, None, None]:
    """Run until ``WARM_UP_TOKENS`` tokens are committed, yielding None per event.

    This allocates the same buffers as the whole run. On ZeroGPU, nothing is run, since the process ends with the run.
    """
    if ON_ZERO_GPU:
        return
    seen = 0
    with closing(stream(run, stop)) as events:
        for event in events:
            seen += len(event.committed) if isinstance(event, StepDone) else 0
            if seen >= WARM_UP_TOKENS:
                return
            yield


class Closed(BaseException):
    """Raised in work on the worker thread whose generator was closed. Not an ``Exception``, so that it ends the whole work."""


def on_worker(events: Iterator[Item]) -> Generator[Item, None, None]:
    """Yields the events of a generator that runs on the worker thread. Closing this generator ends the run before its next step."""

    def work(put: Callable[[Item], None]) -> None:
        with closing(events):  # type: ignore[type-var]
            for event in events:
                put(event)

    return told_by_worker(work)


def told_by_worker(work: Callable[[Callable[[Item], None]], None]) -> Generator[Item, None, None]:
    """Yields what ``work``, which runs on the worker thread, passes to its argument. Closing this generator ends the work at the
    next call of this argument."""
    ready: SimpleQueue[Item | None] = SimpleQueue()
    closed = Flag()

    def put(item: Item) -> None:
        ready.put(item)
        if closed.is_set():
            raise Closed

    def run() -> None:
        try:
            with suppress(Closed):
                work(put)
        finally:
            ready.put(None)

    working = _worker.submit(run)
    try:
        while (item := ready.get()) is not None:
            yield item
    finally:
        closed.set()
        working.result()


class RunRecorder:
    """Runs a request and records its events. Iterating over this object runs the request, and yields None per event.

    stop: returns True to end the run before its next step.
    share: see ``stream``.
    """

    def __init__(self, run: Prepared, stop: Callable[[], bool], share: ThreadShare | None = None):
        self._run, self._stop, self._share = run, stop, share
        self._events: list[Event] = []

    def __iter__(self) -> Iterator[None]:
        with closing(stream(self._run, self._stop, self._share)) as events:
            for event in events:
                self._events.append(event)
                yield

    def trace(self, **fields: Any) -> Trace:
        """Returns the trace recorded so far. ``fields`` are added to its header."""
        return Trace.of(self._run.engine.header(self._run.request) | fields, self._events)


def paced(steps: Iterable[None]) -> Iterator[None]:
    """Run ``steps``, yielding at most every ``SECONDS_BETWEEN_PAUSES`` seconds, since reporting progress costs time.

    Gradio detects a closed window only when the window's work yields, so work without progress must yield too.
    """
    last = time.monotonic()
    for _ in steps:
        if time.monotonic() - last > SECONDS_BETWEEN_PAUSES:
            yield
            last = time.monotonic()
