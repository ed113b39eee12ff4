"""Memory of this machine, returning memory to it, and the expected speed of a large model on its CPU."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from functools import cache
from pathlib import Path

import torch

SIDE = 6144  # of the measured matrix: larger than caches, gone in a moment
REPEATS = 3
GROUPS = Path("/sys/fs/cgroup")


def memory() -> float:
    """Returns the bytes of free memory, within this container's limit."""
    found = [_available()]
    try:
        limit = (GROUPS / "memory.max").read_text().strip()
        used = int((GROUPS / "memory.current").read_text())
        if limit.isdigit():
            found.append(max(0.0, float(limit) - used))
    except (OSError, ValueError):
        pass  # no container, or another kind
    return min(found)


def _available() -> float:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def give_back() -> None:
    """Return free memory to the system after work that needed much of it.

    Python collects garbage rarely, and the C library keeps freed memory; this can only be returned with glibc.
    """
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return


@cache
def seconds_per_weight(dtype: str) -> float:
    """Returns the seconds per weight of a pass over one token on this CPU, measured once with a matrix larger than its caches."""
    kind = getattr(torch, dtype)
    weights, vector = torch.ones(SIDE, SIDE, dtype=kind), torch.ones(SIDE, dtype=kind)
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        torch.mv(weights, vector)
        times.append(time.perf_counter() - began)
    return min(times) / SIDE**2


def about(seconds: float) -> str:
    """Returns a time as a rough figure: 0.4 s, 2 s, 30 s."""
    if seconds >= 9.5:
        return f"{round(seconds, -1):.0f} s"
    return f"{seconds:.0f} s" if seconds >= 0.95 else f"{max(0.1, seconds):.1f} s"
