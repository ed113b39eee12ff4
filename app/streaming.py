"""Runs on whatever this machine computes with, be it a card that is lent for a moment only."""

from __future__ import annotations

from collections.abc import Callable, Generator

from app import models
from app.gpu import ON_ZERO_GPU, on_gpu
from app.models import Chosen
from d2sd import DecodeConfig, Event


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
