"""A kill, as far as files can tell: from the n-th change of a file on, nothing is changed any more."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Killed(BaseException):
    """Raised in place of each change; ``finally`` changes nothing either."""


class Changes:
    """Counts the changes of files that this process makes, and prevents them from number ``last`` on, unless that is None."""

    def __init__(self) -> None:
        self.made = 0
        self.last: int | None = None
        sys.addaudithook(self._heard)  # for good: Python has no way to remove it

    def _heard(self, event: str, given: tuple) -> None:
        opens = event == "open" and isinstance(given[0], str) and given[2] & WRITING
        if self.last is None or not (opens or event in CHANGES):
            return
        self.made += 1
        if self.made == self.last and opens and given[2] & os.O_TRUNC:  # emptied, and nothing written yet
            last, self.last = self.last, None
            Path(given[0]).write_bytes(b"")
            self.last = last
        if self.made >= self.last:
            raise Killed


changes = Changes()


def survives(number: int, work: Callable[[], object]) -> bool:
    """Returns whether a piece of work ends before its n-th change of a file, at which it is killed."""
    changes.made, changes.last = 0, number
    try:
        work()
    except Killed:
        return False
    finally:
        changes.last = None
    return True
