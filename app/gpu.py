"""GPU work on a shared Hugging Face Space (ZeroGPU), where a GPU is lent for one call at a time.

This is the one place that knows the ``spaces`` package; without it everything here is plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from d2sd.__about__ import on_zero_gpu

try:
    import spaces
except ImportError:
    spaces = None

ON_ZERO_GPU = spaces is not None and on_zero_gpu()
SECONDS = 60  # asked for per run; what is not used is given back

Function = TypeVar("Function", bound=Callable[..., Any])


def on_gpu(function: Function) -> Function:
    """Wraps a function so that a GPU is lent to it while it runs; returns it unchanged if none is lent."""
    return function if spaces is None else spaces.GPU(duration=SECONDS)(function)
