"""Number of processor threads that the page's models use."""

from __future__ import annotations

import os

import torch


def threads_here() -> str:
    """Returns a sentence about the number of threads used here, and why."""
    count, named = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
    used = f"The nets use {count} thread{'s' if count > 1 else ''}"
    if named:
        return f"{used}, as OMP_NUM_THREADS says."
    return f"{used}; one core is left to the browser. OMP_NUM_THREADS sets another number."


def leave_a_core() -> None:
    """Let torch leave one core to the browser, unless OMP_NUM_THREADS says how many threads it may use.

    The threads of a pass wait for each other some hundred times a step, spinning. When another program takes one of their
    cores, every wait lasts until the system gives it back. Measured on two cores: two threads fall from 150 to 3 tokens a
    second, one thread from 128 to 110.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, min(torch.get_num_threads(), cores - 1)))
