"""Passes captured as CUDA graphs: one launch replays all kernels of a pass."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

Pass = Callable[..., tuple[Tensor, ...]]
_one_at_a_time = threading.Lock()  # torch cannot capture in two threads at once


@dataclass(frozen=True, slots=True)
class CapturedPass:
    """A CUDA graph with its input and output buffers, which keep their addresses."""

    graph: Any
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def replay(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Run with these inputs; the outputs overwrite those of the last replay."""
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given, non_blocking=True)
        self.graph.replay()
        return self.outputs


@cache
def _stream(device: torch.device) -> Any:
    """Returns the one stream on which a GPU captures, since libraries keep memory for every stream they have seen."""
    return torch.cuda.Stream(device)


class Recorder:
    """Captures passes on one GPU, all of them in one memory pool."""

    def __init__(self, device: torch.device):
        self.device = device
        self._pool: Any = None

    def capture(self, function: Pass, inputs: tuple[Tensor, ...]) -> CapturedPass:
        """Capture a pass, which is run three times and must therefore be idempotent. Raises ``RuntimeError`` if it fails."""
        with torch.cuda.device(self.device), _one_at_a_time:
            stream = _stream(self.device)
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            current = torch.cuda.current_stream()
            own = tuple(given.clone() for given in inputs)
            stream.wait_stream(current)
            with torch.cuda.stream(
                stream
            ):  # libraries set themselves up in the first runs, which a capture must not see
                function(*own)
                found = function(*own)
            current.wait_stream(stream)
            # Not in the pool: graphs captured earlier work in what was free there then, and would write over them.
            outputs = tuple(new.clone() for new in found)
            graph = torch.cuda.CUDAGraph()
            try:
                # other threads may allocate meanwhile: another window's run, say
                with torch.cuda.graph(graph, self._pool, stream, capture_error_mode="thread_local"):
                    for kept, new in zip(outputs, function(*own), strict=True):
                        kept.copy_(new)
            finally:
                torch.cuda.set_stream(current)  # a capture that breaks off leaves its own stream in use
        return CapturedPass(graph, own, outputs)
