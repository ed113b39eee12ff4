"""Executes runs, on this machine or on a ZeroGPU Space, which provides a GPU for one run at a time.

``prepare_run`` validates a run, ``get_ready`` does its one-time work, and ``stream`` yields its events.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Event as Flag
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from app import models, settings
from app.jobs import Update
from app.links import check_length
from app.machine import ON_ZERO_GPU, on_gpu
from app.visitors import without_paths
from d2sd import DecodeConfig, Engine, Event, StepDone, Trace
from d2sd.costs.runs import ThreadShare
from d2sd.engine import Request
from d2sd.folders.model_sets import ModelSet

Item = TypeVar("Item")
WARM_UP_TOKENS = 16
SECONDS_BETWEEN_TRIES = 1 / 6
# All runs use one thread. They take turns anyway, and torch keeps a pool of threads for every thread that calls it.
_worker = ThreadPoolExecutor(1, "engine")
_getting_ready = threading.Lock()
_warm: WeakKeyDictionary[Engine, set[DecodeConfig]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the form requests: runs of one prompt (Explore, Race), or of a prompt set (Calibrate).

    prompt, method: empty where a tab does not use them.
    settings: value of each setting that the tab uses, by name.
    compare: whether to compare the run's speed with plain decoding.
    """

    prompt: str
    models: ModelSet
    method: str
    settings: dict[str, Any]
    compare: bool = True

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> RunRequest:
        """Returns the request. ``values``: values of controls, by the names in ``Controls.inputs``."""
        return cls(
            values.get("prompt") or "",
            models.from_form(values["model"], values["folder"], values["vp"]),
            values.get("method") or "",
            {s.name: values[s.name] for s in settings.SETTINGS if s.name in values},
        )

    def config(self) -> DecodeConfig:
        """Returns the configuration. Raises ``InputError`` if a setting is invalid or the prompt is too long for the page."""
        check_length(self.prompt)
        return settings.config(self.method, self.settings)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that was validated and can start. ``chosen``: its models, from which another process can load the engine."""

    chosen: ModelSet
    engine: Engine
    request: Request

    def warnings(self) -> str:
        return without_paths(" ".join(f"{note[:1].upper()}{note[1:]}." for note in self.engine.models.notes()))

    def trace(self, events: Sequence[Event], **fields: Any) -> Trace:
        """Returns the trace of the run's events so far. ``fields`` are added to its header."""
        return Trace.of(self.engine.header(self.request) | fields, events)


class Pacer:
    """Limits how often work yields, since reporting progress costs time.

    Gradio detects a closed window only when the window's work yields, so work without progress yields at this pace too.

    seconds: shortest time between two yields.
    """

    def __init__(self, seconds: float = 0.5) -> None:
        self._seconds, self._since = seconds, time.monotonic()

    def due(self) -> bool:
        """Returns whether the work should yield now. The next interval begins at the next call, when the work continues after its
        yield.
        """
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since <= self._seconds:
            return False
        self._since = 0.0
        return True


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


def get_ready(run: Prepared, stop: Callable[[], bool], plain: Iterable[None] = ()) -> Generator[None, None, None]:
    """Do the one-time work for the run's settings, after such work on other threads has ended. Yields None between its parts.

    One-time work is the first use of memory and, on a GPU, the capture of passes.

    plain: a ``PlainStep``, iterated last to measure a step of plain decoding; empty if this time is not needed.
    """
    while not _getting_ready.acquire(timeout=SECONDS_BETWEEN_TRIES):
        yield
        if stop():
            return
    try:
        # much longer texts need larger buffers, for which passes are captured again
        config = run.request.config
        kind = replace(config, seed=0, max_new_tokens=1 + config.max_new_tokens // 1024)
        done = _warm.setdefault(run.engine, set())
        if kind not in done:
            yield from warm_up(run, stop)
            if not stop():
                done.add(kind)
        yield from plain
    finally:
        _getting_ready.release()


def warm_up(run: Prepared, stop: Callable[[], bool]) -> Generator[None, None, None]:
    """Run until ``WARM_UP_TOKENS`` tokens are committed, yielding None per event, so that the timed run includes no one-time work.

    This allocates the same buffers as the whole run. On ZeroGPU, nothing is run, since the process ends with the run.
    """
    if ON_ZERO_GPU:
        return
    tokens = 0
    with closing(stream(run, stop)) as events:
        for event in events:
            tokens += len(event.committed) if isinstance(event, StepDone) else 0
            if tokens >= WARM_UP_TOKENS:
                return
            yield


def stream(run: Prepared, stop: Callable[[], bool], share: ThreadShare | None = None) -> Generator[Event, None, None]:
    """Returns a generator of the events of a run, which ends before the next step if ``stop`` returns True.

    share: measures how long the run's thread computes. Used only on a CPU, since with a GPU the thread mostly waits.
    """
    if ON_ZERO_GPU:
        return _on_zero_gpu(run, stop)
    if share is None or run.engine.models.target.device.type != "cpu":
        share = ThreadShare()

    def work(put: Callable[[Event], None]) -> None:
        with closing(run.engine.run(run.request, stop)) as events:
            while (event := share.next(events)) is not None:
                put(event)

    return on_worker(work)


def _on_zero_gpu(run: Prepared, stop: Callable[[], bool]) -> Generator[Event, None, None]:
    for event in _elsewhere(run.chosen, run.request):
        yield event
        if stop():
            raise RuntimeError("stopped by you")


@on_gpu
def _elsewhere(chosen: ModelSet, request: Request) -> Generator[Event, None, None]:
    yield from models.engine(chosen).run(request, never)


class Closed(BaseException):
    """Raised in work on the worker thread whose generator was closed. Not an ``Exception``, so that it ends the whole work."""


def on_worker(work: Callable[[Callable[[Item], None]], None]) -> Generator[Item, None, None]:
    """Run ``work`` on the worker thread, and yield what it passes to its argument, in order.

    Closing this generator ends the work at its next call of the argument, and waits for this end.
    """
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
