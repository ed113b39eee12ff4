"""Simulates a kill of the process: from its n-th change of a file on, it can change no file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Killed(BaseException):
    """Raised in place of each change, also of changes in ``finally`` blocks."""


class Changes:
    """Counts this process's changes of files and prevents them from number ``last`` on (None: never)."""

    def __init__(self) -> None:
        self.made = 0
        self.last: int | None = None
        sys.addaudithook(self._heard)  # permanent: Python cannot remove audit hooks

    def _heard(self, event: str, given: tuple) -> None:
        opens = event == "open" and isinstance(given[0], str) and given[2] & WRITING
        if self.last is None or not (opens or event in CHANGES):
            return
        self.made += 1
        if self.made == self.last and opens and given[2] & os.O_TRUNC:  # the file is emptied, but not written
            last, self.last = self.last, None
            Path(given[0]).write_bytes(b"")
            self.last = last
        if self.made >= self.last:
            raise Killed


changes = Changes()


def survives(number: int, work: Callable[[], object]) -> bool:
    """Kills ``work`` at its n-th change of a file; returns whether it ended before."""
    changes.made, changes.last = 0, number
    try:
        work()
    except Killed:
        return False
    finally:
        changes.last = None
    return True
