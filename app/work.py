"""Long-running work: progress, cancellation, and the queue for the models."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Update(Generic[T]):
    """A progress update for the page. At most one of the sentences is not empty.

    value: what is shown from now on; None: what is there stays.
    problem: what went wrong.
    news: what goes on.
    note: on what is shown.
    """

    value: T | None = None
    problem: str = ""
    news: str = ""
    note: str = ""


@dataclass(slots=True)
class Ticket:
    """Numbers of the requests in one place of a window, which decide what runs and which answers count.

    newest: the latest request; work for any other one is cancelled.
    claimed: the latest request that was started.
    stopped: the latest request that was cancelled without another in its place.
    asked: the page's own number of its latest call that answers at once.
    place: how many requests were reported to be ahead in the queue; −1 if nothing was reported.
    """

    newest: int = 0
    claimed: int = 0
    stopped: int = 0
    asked: int = 0
    place: int = -1

    def request(self) -> int:
        """Register a request and return its number. Earlier ones, running or waiting, are cancelled."""
        self.newest += 1
        self.place = -1
        return self.newest

    def latest(self, asked: int | None) -> bool:
        """Returns whether this is the page's latest call; the answer to an older one must change nothing.

        Call it where a handler begins and again before it answers.

        asked: the page's number of the call; None for a caller without one, which is always the latest.
        """
        self.asked = max(self.asked, asked or 0)
        return asked is None or asked == self.asked

    def claim(self, number: int) -> bool:
        """Returns whether the work of this number may start: it is the newest and was not started before."""
        if number != self.newest or number == self.claimed:
            return False
        self.claimed = number
        return True

    def replaced(self, number: int) -> bool:
        """Whether a newer request replaced this one; a request that was only cancelled is not replaced."""
        return self.newest != number and not self.stopped == number == self.newest - 1

    @property
    def waiting(self) -> bool:
        """Whether the newest request has not started."""
        return self.newest != self.claimed

    def stop(self) -> bool:
        """Cancel running or queued work; returns whether queued work had not begun."""
        waited = self.waiting
        self.stopped = self.newest
        self.newest = self.claimed = self.newest + 1
        return waited


NEXT = "Something else is running; this starts when it ends."  # to who is the first in line
TURNS_COUNTED = 9  # the latest, which say how long one lasts


class Turns:
    """The queue for the models."""

    def __init__(self) -> None:
        self._whose: object = None
        self._began = 0.0
        self._lasted = deque[float](maxlen=TURNS_COUNTED)

    def taken(self, by: object, updates: Iterator[Update[T]]) -> Iterator[Update[T]]:
        """The updates of somebody's work, or one that changes nothing: Gradio takes a stream that ends without any for one
        of empty values."""
        self._whose, self._began, first = by, time.monotonic(), None
        try:
            first = next(updates, None)
            yield first or Update()
            if first:
                yield from updates
        finally:
            self._whose = None
            if first:
                self._lasted.append(time.monotonic() - self._began)

    def news(self, asking: object, waiting: int = 0) -> str:
        """Returns a sentence for a request that waits for others' work; empty if nothing is running.

        ``waiting``: how many others wait already, in front of who asks.
        """
        return "" if self._whose is None or self._whose is asking else self.line(waiting)

    def line(self, waiting: int) -> str:
        """The same for a request in the queue, also between two turns, with an estimated time from the latest turns."""
        said = NEXT
        if waiting:
            said = f"Somebody else's run goes on, and {waiting} more {'is' if waiting == 1 else 'are'} ahead of yours: number {waiting + 1} in line."
        if not self._lasted:
            return said
        one = statistics.median(self._lasted)
        gone = 0.0 if self._whose is None else min(one, time.monotonic() - self._began)
        return f"{said} Going by the latest turns, that takes {_about(one * (waiting + 1) - gone)}."


def _about(seconds: float) -> str:
    if seconds < 10:
        return "less than 10 s"
    return f"about {round(seconds, -1):.0f} s" if seconds < 95 else f"about {seconds / 60:.0f} minutes"


TURNS = Turns()
