"""GPU work on a ZeroGPU Space of Hugging Face, which provides a GPU for one call at a time.

Only this module uses the ``spaces`` package; without that package its functions do nothing special.
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
    """Wraps a function so that it runs with a GPU on ZeroGPU; elsewhere returns it unchanged."""
    return function if spaces is None else spaces.GPU(duration=SECONDS)(function)
