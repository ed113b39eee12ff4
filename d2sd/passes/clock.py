"""Measures the stages of a cycle on the device that runs them."""

from __future__ import annotations

import time
from typing import Any

import torch


class StageClock:
    """Times of stages that are queued one after the other: events on a GPU, the clock on the wall elsewhere."""

    def __init__(self, device: torch.device):
        self._device, self._cuda = device, device.type == "cuda"
        self._names: list[str] = []
        self._marks: list[Any] = []
        self._events: list[Any] = []  # kept from cycle to cycle

    def start(self) -> None:
        """A cycle begins."""
        self._names.clear()
        self._marks.clear()
        self.mark("")

    def mark(self, name: str) -> None:
        """A stage of this name ends here."""
        self._names.append(name)
        if not self._cuda:
            self._marks.append(time.perf_counter())
            return
        if len(self._events) < len(self._names):
            self._events.append(torch.cuda.Event(enable_timing=True))
        event = self._events[len(self._names) - 1]
        event.record(torch.cuda.current_stream(self._device))
        self._marks.append(event)

    def read(self) -> dict[str, float]:
        """Seconds by stage; on a GPU, once its work has ended."""
        pairs = zip(self._names[1:], self._marks, self._marks[1:], strict=False)
        if self._cuda:
            return {name: one.elapsed_time(other) / 1e3 for name, one, other in pairs}
        return {name: other - one for name, one, other in pairs}
