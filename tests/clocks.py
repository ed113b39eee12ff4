"""Clocks for code that has a time budget, so that its result does not depend on how fast the machine is."""

from __future__ import annotations


class Ticking:
    """A clock that advances by ``tick`` seconds each time it is read, so time depends only on the number of reads."""

    def __init__(self, tick: float):
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now
