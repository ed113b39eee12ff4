"""Runs the passes of models: eagerly with exact shapes, padded to fixed shapes, or captured as CUDA graphs.

A captured pass replays all its kernels with one launch. This needs fixed shapes and buffers with fixed addresses:

* the number of rows is padded to one of ``ROWS``;
* the number of prefix slots that are read is one of a few lengths, and slots beyond the text are masked;
* successive generations reuse the same caches.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from d2sd.__about__ import on_zero_gpu
from d2sd.config import PASSES, check_choice
from d2sd.errors import InputError
from d2sd.nets.attention import make_backend
from d2sd.nets.caches import KeyValueCache
from d2sd.nets.flashinfer import KERNELS, FlashInfer
from d2sd.nets.lean import TORCH, Kernels

if TYPE_CHECKING:
    from d2sd.tree.tree import TokenTree


# Captured passes.


PassFunction = Callable[..., tuple[Tensor, ...]]
_one_at_a_time = threading.Lock()  # torch cannot capture in two threads at once


class CapturedPass(NamedTuple):
    """A CUDA graph with its input and output buffers, which keep their addresses."""

    graph: Any
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def replay(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Runs the pass with these inputs. Its outputs overwrite the outputs of the last replay."""
        for buffer, given in zip(self.inputs, inputs, strict=True):
            buffer.copy_(given, non_blocking=True)
        self.graph.replay()
        return self.outputs


@cache
def _stream(device: torch.device) -> Any:
    """Returns a GPU's capture stream. All captures share it, since libraries allocate memory for every stream that they see."""
    return torch.cuda.Stream(device)


class PassRecorder:
    """Captures passes on one GPU. All captures share one memory pool."""

    def __init__(self, device: torch.device):
        self.device = device
        self._pool: Any = None

    def capture(self, function: PassFunction, inputs: tuple[Tensor, ...]) -> CapturedPass:
        """Captures a pass. It runs three times, so it must be idempotent. Raises ``RuntimeError`` if the capture fails."""
        with torch.cuda.device(self.device), _one_at_a_time:
            stream = _stream(self.device)
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            current = torch.cuda.current_stream()
            buffers = tuple(given.clone() for given in inputs)
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                function(*buffers)  # libraries initialise themselves in the first runs, which must not be captured
                results = function(*buffers)
            current.wait_stream(stream)
            # Allocated outside the pool, whose memory is shared: a replay of an earlier graph could overwrite outputs in it.
            outputs = tuple(new.clone() for new in results)
            graph = torch.cuda.CUDAGraph()
            try:
                # other threads, such as another user's run, may allocate during the capture
                with torch.cuda.graph(graph, self._pool, stream, capture_error_mode="thread_local"):
                    for kept, new in zip(outputs, function(*buffers), strict=True):
                        kept.copy_(new)
            finally:
                torch.cuda.set_stream(current)  # a failed capture leaves its own stream current
        return CapturedPass(graph, buffers, outputs)


# Fixed shapes.


ROWS = (1, 8, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 384, 513, 1024, 2048)
MIN_CONTEXT = 256  # slots; the smallest context, and the smallest step between contexts


def row_shape(rows: int) -> int:
    """Returns the smallest number in ``ROWS`` that is at least ``rows``, or ``rows`` itself if it exceeds all of them."""
    return next((shape for shape in ROWS if shape >= rows), rows)


def context_shape(slots: int) -> int:
    """Returns the smallest fixed number of context slots that is at least ``slots``.

    It exceeds ``slots`` by at most 255, or by at most 25% if this is more.
    """
    step = max(MIN_CONTEXT, 1 << max(0, (slots - 1).bit_length() - 3))
    return max(MIN_CONTEXT, -(-slots // step) * step)


def padded_tree(tree: TokenTree, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns a tree's tokens (rows,), depths (rows,) and mask (rows, rows), padded with rows that see only themselves."""
    count = len(tree)
    tokens, depths = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    tokens[:count], depths[:count] = tree.tokens, tree.depths
    mask = np.eye(rows, dtype=bool)
    mask[:count, :count] = tree.ancestor_mask()
    return tokens, depths, mask


# Running passes.


Mode = Literal["eager", "padded", "captured"]
MAX_CAPTURED = 96  # graphs; each combination of settings and prefix length needs a few
log = logging.getLogger(__name__)


def choose_mode(mode: str, device: torch.device, capturable: bool, fixable: bool = True) -> Mode:
    """Returns the mode in which passes run.

    mode: a mode, or "auto": captured if the models are ``capturable`` and on a CUDA GPU (not ZeroGPU), otherwise eager.
    capturable, fixable: as in ``Target``.

    Raises ``InputError`` if the mode is unknown or not possible.
    """
    check_choice("kind of passes", mode, PASSES)
    possible = device.type == "cuda" and capturable and not on_zero_gpu()
    if mode == "captured" and not possible:
        raise InputError(
            "captured passes need all models on one CUDA GPU (not ZeroGPU), weights that are not quantised, and a target without "
            "experts, linear attention or layers that share keys; choose auto or eager"
        )
    if mode == "padded" and not fixable:
        raise InputError(
            "padded passes need a target without linear attention or layers that share keys; choose auto or eager"
        )
    return ("captured" if possible else "eager") if mode == "auto" else mode  # type: ignore[return-value]


class Passes:
    """Caches, attention backend and captured graphs. The engine uses them for one generation at a time, and keeps them for the next
    one.

    merged: whether fixed-shape passes run layers with merged weights if possible (``d2sd.nets.lean``), instead of the modules.
    """

    def __init__(self, mode: Mode, backend: str, capacity: int, device: torch.device, merged: bool = True):
        self.mode, self.device = mode, device
        self.capacity = context_shape(capacity) if self.fixed else capacity
        self.backend = make_backend(backend, self.fixed)
        self._flashinfer = self.backend if isinstance(self.backend, FlashInfer) else None
        self.kernels: Kernels = TORCH if self._flashinfer is None else KERNELS
        self.merged = merged and self.fixed
        self._caches: dict[str, KeyValueCache] = {}
        self._captured: dict[Hashable, CapturedPass] = {}
        self._recorder = PassRecorder(device)

    @property
    def fixed(self) -> bool:
        return self.mode != "eager"

    def cache(self, name: str, make: Callable[[int], KeyValueCache]) -> KeyValueCache:
        """Returns the cache of this name, emptied. At its first use, ``make`` creates it, given the number of slots."""
        if name not in self._caches:
            self._caches[name] = make(self.capacity)
        self._caches[name].clear()
        return self._caches[name]

    def read(self, cache: KeyValueCache) -> int:
        """Returns the number of prefix slots that a fixed-shape pass reads."""
        most = context_shape(cache.length + 1)  # a single row also attends to its own slot
        return min(most, self.capacity) if self._flashinfer is None else self.capacity

    def window(self, cache: KeyValueCache, rows: int) -> tuple[int, Tensor]:
        """Returns how many slots a fixed-shape pass reads, counted from slot 0, and the indices of the slots that it writes, (rows,)."""
        return self.read(cache), torch.arange(cache.length, cache.length + rows, device=self.device)

    def plan(self, query: tuple[int, int, int, int], dtype: torch.dtype, kv_heads: int, context: int,
             masked: bool | None, scale: float) -> None:  # fmt: skip
        """Plans the next pass, if the backend plans on the host.

        query: shape of the queries, (B, H, R, D).
        """
        if self._flashinfer is not None:
            self._flashinfer.plan(torch.empty(query, dtype=dtype, device=self.device), kv_heads, context, masked, scale)

    def show(self, mask: Tensor) -> None:
        """Gives the (R, R) mask to the backend, if it packs masks. Fixed-shape passes call this before their layers run."""
        if self._flashinfer is not None:
            self._flashinfer.show(mask)

    def run(self, key: Hashable, function: PassFunction, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Runs a pass. Returns its outputs, which the next replay of the pass overwrites if it is captured.

        key: identifies the pass and everything that its kernels depend on, except for the inputs' values.
        """
        if self.mode != "captured":
            return function(*inputs)
        if key not in self._captured:
            if len(self._captured) >= MAX_CAPTURED:
                if self.device.type == "cuda":  # the last replay may still be running
                    torch.cuda.synchronize(self.device)
                del self._captured[next(iter(self._captured))]
            try:
                self._captured[key] = self._recorder.capture(function, inputs)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                log.warning("passes are no longer captured as CUDA graphs: %s", error, exc_info=error)
                self.mode = "padded"
                return function(*inputs)
        captured = self._captured[key] = self._captured.pop(key)  # LRU: move to the end
        return captured.replay(inputs)


# Times of stages, measured on their device.


class StageClock:
    """Measures the times of consecutive stages, by CUDA events on a GPU and by the wall clock on a CPU."""

    def __init__(self, device: torch.device):
        self._device, self._cuda = device, device.type == "cuda"
        self._names: list[str] = []
        self._marks: list[Any] = []
        self._events: list[Any] = []  # reused in every cycle

    def start(self) -> None:
        self._names.clear()
        self._marks.clear()
        self.mark("")

    def mark(self, name: str) -> None:
        """Ends the stage of this name. If the name is empty, the time since the last mark belongs to no stage."""
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
        spans = zip(self._names[1:], self._marks, self._marks[1:], strict=False)
        named = [span for span in spans if span[0]]
        if self._cuda:
            return {name: one.elapsed_time(other) / 1e3 for name, one, other in named}
        return {name: other - one for name, one, other in named}
