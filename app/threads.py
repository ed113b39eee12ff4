"""How many processor threads the nets of the page use."""

from __future__ import annotations

import os

import torch


def leave_a_core() -> None:
    """Let torch leave one core to the browser, unless OMP_NUM_THREADS says how many threads it may use.

    The threads of a pass wait for each other some hundred times a step, spinning. As soon as another program takes one
    of their cores, every wait lasts until the system gives it back: measured on two cores, 150 tokens a second become
    3 with two threads, and 128 become 110 with one.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, min(torch.get_num_threads(), cores - 1)))
