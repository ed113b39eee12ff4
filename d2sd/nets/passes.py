"""How the passes of the models are run: eagerly with exact shapes, with fixed shapes, or captured as CUDA graphs.

A captured pass replays all its kernels with one launch. This needs fixed shapes and buffers with fixed addresses:

* rows are padded to one of a few numbers (``d2sd.passes.shapes``);
* the prefix is read up to one of a few lengths, and the slots beyond the text are masked;
* caches are reused by one generation after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Literal, get_args

import torch
from torch import Tensor

from d2sd.__about__ import on_zero_gpu
from d2sd.attention import Backend, make_backend
from d2sd.errors import InputError
from d2sd.nets.caches import KeyValueCache
from d2sd.passes.capture import CapturedPass, Pass, Recorder
from d2sd.passes.shapes import context_shape

Mode = Literal["eager", "padded", "captured"]
MODES = ("auto", *get_args(Mode))
MAX_CAPTURED = 96  # kept graphs: each setting and each length of the prefix brings a few
log = logging.getLogger(__name__)


def choose_mode(mode: str, device: torch.device, capturable: bool, fixable: bool = True) -> Mode:
    """Returns the mode of passes. "auto" is captured on a CUDA GPU if the models allow it (``Target.capturable``), and eager
    otherwise and on ZeroGPU.

    Raises ``InputError`` if the mode is not possible, such as padded passes of a model whose shapes cannot be fixed
    (``Target.fixable``).
    """
    if mode not in MODES:
        raise InputError(f"unknown kind of passes {mode!r}; choose one of: {', '.join(MODES)}")
    possible = device.type == "cuda" and capturable and not on_zero_gpu()
    if mode == "captured" and not possible:
        raise InputError(
            "captured passes need all models on one CUDA GPU of this machine's own, weights that are not quantised, and a "
            "target without experts, linear attention and shared keys; choose auto or eager"
        )
    if mode == "padded" and not fixable:
        raise InputError(
            "padded passes need a target without linear attention and without layers that share keys; choose auto or eager"
        )
    chosen: Mode = ("captured" if possible else "eager") if mode == "auto" else mode  # type: ignore[assignment]
    return chosen


class Passes:
    """Buffers, backend and captured graphs of one generation at a time; kept by the engine for the next one."""

    def __init__(self, mode: Mode, backend: str, capacity: int, device: torch.device):
        self.mode, self.device = mode, device
        self.capacity = capacity if mode == "eager" else context_shape(capacity)
        self.backend: Backend = make_backend(backend, fixed=mode != "eager")
        self._caches: dict[str, KeyValueCache] = {}
        self._captured: dict[Hashable, CapturedPass] = {}
        self._recorder = Recorder(device)

    @property
    def fixed(self) -> bool:
        """Whether passes have fixed shapes."""
        return self.mode != "eager"

    def cache(self, name: str, make: Callable[[int], KeyValueCache]) -> KeyValueCache:
        """Returns the empty cache of this name, created for ``capacity`` slots on first use."""
        if name not in self._caches:
            self._caches[name] = make(self.capacity)
        self._caches[name].clear()
        return self._caches[name]

    def read(self, cache: KeyValueCache) -> int:
        """Returns how many prefix slots a fixed-shape pass reads."""
        return self.capacity if hasattr(self.backend, "plan") else min(context_shape(cache.length), self.capacity)

    def window(self, cache: KeyValueCache, rows: int) -> tuple[int, Tensor]:
        """Returns the number of prefix slots that a fixed-shape pass over this many rows reads, and the slots that it writes."""
        return self.read(cache), torch.arange(cache.length, cache.length + rows, device=self.device)

    def plan(self, query: tuple[int, int, int, int], dtype: torch.dtype, kv_heads: int, context: int,
             masked: bool, scale: float) -> None:  # fmt: skip
        """Plan the next pass with a backend that plans on the host; query: its shape (B, H, R, D)."""
        if hasattr(self.backend, "plan"):
            self.backend.plan(torch.empty(query, dtype=dtype, device=self.device), kv_heads, context, masked, scale)

    def show(self, mask: Tensor) -> None:
        """Pass the (R, R) mask to a backend that stores it in another form; call it in a fixed-shape pass before its layers."""
        if hasattr(self.backend, "show"):
            self.backend.show(mask)

    def run(self, key: Hashable, function: Pass, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Returns the outputs of a pass; a captured one overwrites those of its last replay.

        key: names the pass and everything but the inputs' values that its kernels depend on.
        """
        if self.mode != "captured":
            return function(*inputs)
        if key not in self._captured:
            if len(self._captured) >= MAX_CAPTURED:
                self._forget(next(iter(self._captured)))
            try:
                self._captured[key] = self._recorder.capture(function, inputs)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                log.warning("passes are not captured as CUDA graphs from here on: %s", error, exc_info=error)
                self.mode = "padded"
                return function(*inputs)
        captured = self._captured[key] = self._captured.pop(key)  # the latest one is the last to be forgotten
        return captured.replay(inputs)

    def _forget(self, key: Hashable) -> None:
        if self.device.type == "cuda":  # its last replay may still be under way
            torch.cuda.synchronize(self.device)
        del self._captured[key]
