"""Executes runs, on this machine or on a GPU that a shared Space lends for one run at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Event as Flag
from typing import TypeVar
from weakref import WeakKeyDictionary

from app import models
from app.gpu import ON_ZERO_GPU, on_gpu
from app.models import Chosen
from d2sd import DecodeConfig, Engine, Event, StepDone
from d2sd.engine import Request

SECONDS_BETWEEN_PAUSES = 0.5
Item = TypeVar("Item")
WARM_UP_TOKENS = 16
_warm: WeakKeyDictionary[Engine, set[DecodeConfig]] = WeakKeyDictionary()
# One thread for all runs: they take turns anyway, and torch keeps a pool of threads for every thread that calls it.
_worker = ThreadPoolExecutor(1, "engine")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A validated run. ``chosen``: its models, by which another process finds its own engine."""

    chosen: Chosen
    engine: Engine
    request: Request


def prepare(chosen: Chosen, prompt: str, config: DecodeConfig) -> Prepared:
    """Load the models if needed, and resolve the settings; raises ``InputError``.

    A form may hold the γ of other drafters: these take theirs where that is smaller.
    """
    engine = models.engine(chosen)
    if (longest := engine.longest_block(config.method)) is not None:
        gamma, redrafted = (size and min(size, longest) for size in (config.block_size, config.second_block_size))
        config = replace(config, block_size=gamma, second_block_size=redrafted)
    return Prepared(chosen, engine, engine.request(prompt, config))


def never() -> bool:
    """Never stop: unlike a closure this can be sent to the process that a GPU is lent to."""
    return False


def stream(run: Prepared, stop: Callable[[], bool]) -> Generator[Event, None, None]:
    """Yields the events of a run; it ends before the next step if ``stop`` returns True."""
    if not ON_ZERO_GPU:
        yield from ahead(run.engine.run(run.request, stop))
        return
    for event in _elsewhere(run.chosen, run.request):
        yield event
        if stop():
            raise RuntimeError("stopped by you")


@on_gpu
def _elsewhere(chosen: Chosen, request: Request) -> Generator[Event, None, None]:
    yield from models.engine(chosen).run(request, never)


def first_tokens(run: Prepared, stop: Callable[[], bool]) -> Generator[None, None, None]:
    """Begin a run and end it after a few tokens: as the run itself it takes buffers that hold the whole text.

    What is done on a lent GPU is gone with it, so nothing is begun there.
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


def warm_up(run: Prepared, stop: Callable[[], bool]) -> Generator[None, None, None]:
    """Run a few tokens with settings that are new to these models, so that the run itself is timed alone.

    Memory is then touched, and passes are captured on a GPU.
    """
    # much longer texts get larger buffers, and what is captured for them is captured anew
    config = run.request.config
    kind = replace(config, seed=0, max_new_tokens=1 + config.max_new_tokens // 1024)
    done = _warm.setdefault(run.engine, set())
    if kind in done:
        return
    yield from first_tokens(run, stop)
    if not stop():
        done.add(kind)


def ahead(events: Iterator[Item]) -> Generator[Item, None, None]:
    """The events, made by a thread of their own; closing this ends the run before its next step."""
    ready: SimpleQueue[Item | None] = SimpleQueue()
    closed = Flag()

    def work() -> None:
        try:
            with closing(events):  # type: ignore[type-var]
                for event in events:
                    ready.put(event)
                    if closed.is_set():
                        break
        finally:
            ready.put(None)

    working = _worker.submit(work)
    try:
        while (event := ready.get()) is not None:
            yield event
    finally:
        closed.set()
        working.result()


def collect(run: Generator[Event, None, None], events: list[Event]) -> Iterator[None]:
    """Yields None per event while collecting the events of a run in a list."""
    with closing(run):
        for event in run:
            events.append(event)
            yield


def paced(steps: Iterator[None]) -> Iterator[None]:
    """Run ``steps``, yielding only now and then, since reporting progress costs time.

    A window that was closed is noticed where its work yields, so work that has nothing to say does so all the same.
    """
    last = time.monotonic()
    for _ in steps:
        if time.monotonic() - last > SECONDS_BETWEEN_PAUSES:
            yield
            last = time.monotonic()
