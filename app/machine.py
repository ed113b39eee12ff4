"""This machine: its memory and threads, and the GPU that a ZeroGPU Space of Hugging Face lends for one call at a time.

Only this module uses the ``spaces`` package. Without that package, ``on_gpu`` has no effect.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from d2sd.__about__ import on_zero_gpu

try:
    import spaces
except ImportError:
    spaces = None

ON_ZERO_GPU = spaces is not None and on_zero_gpu()
SECONDS = 60  # GPU time that a run reserves; unused time is returned
Function = TypeVar("Function", bound=Callable[..., Any])


def memory() -> float:
    """Returns the free memory in bytes; in a container, at most the unused part of the container's limit."""
    free = float(psutil.virtual_memory().available)
    with suppress(OSError, ValueError):  # no container with cgroup v2, or "max": no limit
        limit, used = (
            float(Path("/sys/fs/cgroup/memory." + end).read_text(encoding="utf-8")) for end in ("max", "current")
        )
        free = min(free, max(0.0, limit - used))
    return free


def release_memory() -> None:
    """Return free memory to the system after work that needed much memory.

    Python collects garbage rarely, and the C library keeps freed memory. Only glibc has a function that returns it.
    """
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # TypeError: on Windows
        ctypes.CDLL(None).malloc_trim(0)


def threads_here() -> str:
    import torch  # takes a second, which the check of the page's address need not wait for

    count = torch.get_num_threads()
    used = f"The models use {count} thread{'s' * (count > 1)}"
    if os.environ.get("OMP_NUM_THREADS"):
        return f"{used}, as set by OMP_NUM_THREADS."
    return f"{used}; one core is left for the browser. Set OMP_NUM_THREADS to change this."


def leave_a_core() -> None:
    """Let torch leave one core for the browser, unless OMP_NUM_THREADS sets the number of threads.

    The threads of a forward pass busy-wait for each other about a hundred times per step. If another program takes one of
    their cores, every wait lasts until the system returns the core. Measured on two cores: such a program slows
    decoding with two threads from 150 to 3 tokens per second, and with one thread from 128 to 110.
    """
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, min(torch.get_num_threads(), cores - 1)))


def on_gpu(function: Function) -> Function:
    """Returns a function that runs ``function`` with a GPU on ZeroGPU; without the ``spaces`` package, the function itself."""
    return function if spaces is None else spaces.GPU(duration=SECONDS)(function)
