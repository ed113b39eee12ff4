"""Runs Python's clocks ``CLOCK`` times faster, so that the machine seems slower (4) or quicker (0.25).

Python imports this module at its start if its folder is on ``PYTHONPATH``, as in ``make test CLOCK=4``. Results of
tests must not depend on the factor.
"""

import os
import time
from collections.abc import Callable

RATE = float(os.environ.get("CLOCK", "1"))


def scaled(clock: Callable[[], float]) -> Callable[[], float]:
    """Returns a clock that runs at ``RATE`` from now on."""
    start = clock()
    return lambda: start + (clock() - start) * RATE


time.monotonic, time.perf_counter = scaled(time.monotonic), scaled(time.perf_counter)
