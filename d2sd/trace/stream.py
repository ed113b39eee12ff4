"""A run in progress: its events one by one, and the trace of the events so far."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from d2sd.trace.events import Event
from d2sd.trace.trace import Trace


class EventStream(Iterator[Event]):
    """Iterator over the events of a run while it is generated, returned by ``Engine.stream``.

    header: function that returns the header of the run.
    events: generator of the events.
    """

    def __init__(self, header: Callable[[], dict[str, Any]], events: Generator[Event]):
        self._header, self._events = header, events
        self._received: list[Event] = []

    def __next__(self) -> Event:
        self._received.append(next(self._events))
        return self._received[-1]

    def __repr__(self) -> str:
        return f"<run in progress, {self.trace}>"

    def close(self) -> None:
        """Ends the run and releases its caches."""
        self._events.close()

    @property
    def trace(self) -> Trace:
        """The trace of the events received so far; complete once the iterator is exhausted."""
        return Trace.of(self._header(), self._received)
