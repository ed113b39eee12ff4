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
    """A progress update for the page. At most one of ``problem``, ``news`` and ``note`` is not empty.

    value: new content of the view; None leaves it unchanged.
    problem: an error message.
    news: the current activity.
    note: a remark about the content.
    """

    value: T | None = None
    problem: str = ""
    news: str = ""
    note: str = ""


@dataclass(slots=True)
class Ticket:
    """Numbers of the requests of one view of a window. They decide which work runs and which answers are used.

    newest: the latest request; work for any other one is cancelled.
    claimed: the latest request that was started.
    stopped: the latest request that was cancelled and not replaced by another.
    asked: number that the page gave its latest call that is answered without queueing.
    place: number of requests ahead in the queue, as last reported; −1 if none was reported.
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
        """Returns whether this is the page's latest call; the answer to an older call must not change the page.

        Call it at the start of a handler and again before it returns.

        asked: the page's number of the call; a call without a number (None) always counts as the latest.
        """
        self.asked = max(self.asked, asked or 0)
        return asked is None or asked == self.asked

    def claim(self, number: int) -> bool:
        """Returns whether the request with this number may start: it is the newest and was not started before."""
        if number != self.newest or number == self.claimed:
            return False
        self.claimed = number
        return True

    def replaced(self, number: int) -> bool:
        """Returns whether a newer request replaced this one; a request that was only cancelled is not replaced."""
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
        """Yields the updates of one request, and records how long it took.

        Without any update, yields one that changes nothing: Gradio would treat an empty stream as empty values.

        by: identifies the requester, for ``news``.
        """
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
        """Returns a sentence for a request that waits for another one; empty if none runs, or only that of ``asking``.

        waiting: number of requests in the queue ahead of this one.
        """
        return "" if self._whose is None or self._whose is asking else self.line(waiting)

    def line(self, waiting: int) -> str:
        """Returns a sentence for a queued request, with a waiting time estimated from the latest requests.

        waiting: number of requests in the queue ahead of this one.
        """
        said = NEXT
        if waiting:
            said = f"Another visitor's run is in progress, and {waiting} more {'is' if waiting == 1 else 'are'} ahead of yours: number {waiting + 1} in the queue."
        if not self._lasted:
            return said
        one = statistics.median(self._lasted)
        gone = 0.0 if self._whose is None else min(one, time.monotonic() - self._began)
        return f"{said} Judging by the latest requests, the wait is {_about(one * (waiting + 1) - gone)}."


def _about(seconds: float) -> str:
    if seconds < 10:
        return "less than 10 s"
    return f"about {round(seconds, -1):.0f} s" if seconds < 95 else f"about {seconds / 60:.0f} minutes"


TURNS = Turns()
