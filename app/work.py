"""Long work: what it tells the page while it goes on, whether it is still wanted, and whose turn it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Update(Generic[T]):
    """What work tells the page. At most one of the sentences is not empty.

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
    """Numbers of what is asked for in one place of a window: ``newest``, any other work of it is to stop, and ``claimed``,
    the latest that was started."""

    newest: int = 0
    claimed: int = 0

    def request(self) -> int:
        """Ask for work: its number. What was asked for earlier, running or waiting, stops."""
        self.newest += 1
        return self.newest

    def claim(self, number: int) -> bool:
        """Whether the work of this number may start: it is the newest and was not started before."""
        if number != self.newest or number == self.claimed:
            return False
        self.claimed = number
        return True

    @property
    def waiting(self) -> bool:
        """Whether the newest work was asked for and has not begun."""
        return self.newest != self.claimed

    def stop(self) -> bool:
        """Stop whatever runs or waits; whether something waited that had not begun."""
        waited = self.waiting
        self.newest = self.claimed = self.newest + 1
        return waited


NEXT = "Something else is running; this starts when it ends."  # to who is the first in line


class Turns:
    """Whose work goes on at present."""

    def __init__(self) -> None:
        self._whose: object = None

    def taken(self, by: object, updates: Iterator[Update[T]]) -> Iterator[Update[T]]:
        """The updates of somebody's work, or one that changes nothing: Gradio takes a stream that ends without any for one
        of empty values."""
        self._whose = by
        try:
            first = next(updates, None)
            yield first or Update()
            if first:
                yield from updates
        finally:
            self._whose = None

    def news(self, asking: object, waiting: int = 0) -> str:
        """A sentence for who asks for work while that of others goes on; empty where none does.

        ``waiting``: how many others wait already, in front of who asks.
        """
        if self._whose is None or self._whose is asking:
            return ""
        if waiting:
            return f"Somebody else's run goes on, and {waiting} more {'is' if waiting == 1 else 'are'} ahead of yours: number {waiting + 1} in line."
        return NEXT


TURNS = Turns()
