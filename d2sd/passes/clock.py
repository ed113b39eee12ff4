"""Measures the stages of a cycle on the device that runs them."""

from __future__ import annotations

import time
from typing import Any

import torch


class StageClock:
    """Times of consecutive stages, by CUDA events on a GPU and by the wall clock elsewhere."""

    def __init__(self, device: torch.device):
        self._device, self._cuda = device, device.type == "cuda"
        self._names: list[str] = []
        self._marks: list[Any] = []
        self._events: list[Any] = []  # kept from cycle to cycle

    def start(self) -> None:
        """Start a cycle."""
        self._names.clear()
        self._marks.clear()
        self.mark("")

    def mark(self, name: str) -> None:
        """End the stage of this name."""
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
        """Returns the seconds by stage; on a GPU, after its work has finished."""
        pairs = zip(self._names[1:], self._marks, self._marks[1:], strict=False)
        if self._cuda:
            return {name: one.elapsed_time(other) / 1e3 for name, one, other in pairs}
        return {name: other - one for name, one, other in pairs}
