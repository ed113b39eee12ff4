"""Makes the machine seem ``CLOCK`` times slower (4) or quicker (0.25): its clocks run so much faster or slower.

Python imports this module at its start where its folder is on ``PYTHONPATH``; ``make test CLOCK=4`` puts it there. What a
test finds must not depend on it.
"""

import os
import time
from collections.abc import Callable

RATE = float(os.environ.get("CLOCK", "1"))


def scaled(clock: Callable[[], float]) -> Callable[[], float]:
    """A clock that runs at ``RATE`` from now on."""
    start = clock()
    return lambda: start + (clock() - start) * RATE


time.monotonic, time.perf_counter = scaled(time.monotonic), scaled(time.perf_counter)
