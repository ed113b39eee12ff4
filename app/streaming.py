"""Runs on whatever this machine computes with, be it a card that is lent for a moment only."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing

from app import models
from app.gpu import ON_ZERO_GPU, on_gpu
from app.models import Chosen
from d2sd import DecodeConfig, Event

SECONDS_BETWEEN_PAUSES = 0.5


def never() -> bool:
    """A run that nobody stops: what a lent card's other process can be sent."""
    return False


def stream(chosen: Chosen, prompt: str, config: DecodeConfig, stop: Callable[[], bool]) -> Generator[Event, None, None]:
    """The events of a run; once ``stop`` answers True it ends before its next step."""
    if not ON_ZERO_GPU:
        yield from models.engine(chosen).stream(prompt, config, stop=stop)
        return
    for event in _elsewhere(chosen, prompt, config):
        yield event
        if stop():
            raise RuntimeError("stopped by you")


@on_gpu
def _elsewhere(chosen: Chosen, prompt: str, config: DecodeConfig) -> Generator[Event, None, None]:
    yield from models.engine(chosen).stream(prompt, config, stop=never)


def collect(run: Generator[Event, None, None], events: list[Event]) -> Iterator[None]:
    """Let a run go on, event by event, into a list."""
    with closing(run):
        for event in run:
            events.append(event)
            yield


def paced(steps: Iterator[None]) -> Iterator[None]:
    """Run through ``steps``, yielding only now and then: to write out progress costs the run time.

    A window that was closed is noticed where its work yields, so work that has nothing to say does so all the same.
    """
    last = time.monotonic()
    for _ in steps:
        if time.monotonic() - last > SECONDS_BETWEEN_PAUSES:
            yield
            last = time.monotonic()
