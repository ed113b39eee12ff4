"""D²SD and related methods: speculative decoding with block drafters, as a stream of inspectable steps.

Public names are imported on first use, so that reading traces does not import torch.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

from d2sd.__about__ import __version__, lazy_names

if TYPE_CHECKING:
    from d2sd.config import DecodeConfig
    from d2sd.engine import Engine, load
    from d2sd.errors import InputError
    from d2sd.figures.notebook import show
    from d2sd.folders.model_sets import presets
    from d2sd.methods import METHODS
    from d2sd.trace.events import Event, Finished, PrefillDone, StepDone
    from d2sd.trace.graph import graph
    from d2sd.trace.stream import EventStream
    from d2sd.trace.trace import Trace, load_trace, read_traces

__all__ = [
    "METHODS",
    "DecodeConfig",
    "Engine",
    "Event",
    "EventStream",
    "Finished",
    "InputError",
    "PrefillDone",
    "StepDone",
    "Trace",
    "__version__",
    "graph",
    "load",
    "load_trace",
    "presets",
    "read_traces",
    "show",
]
# Torch's threads wait for each other several hundred times per step. With these variables, a waiting thread spins for about the time
# between two matrix products, then sleeps. Longer spinning is slow if another program needs a core. Tokens/s of SmolLM2 on two cores
# by spin count, and in parentheses while another program keeps one core busy: 1,000: 37 (30); 2,000: 48 (23); 3,000: 54 (17);
# 5,000: 54 (16); 30,000: 46 (6). Torch reads these variables when it is imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    os.environ.setdefault("KMP_BLOCKTIME", "0")  # for libomp
# tqdm warns on import if notebook widgets are missing. Text progress bars are enough.
warnings.filterwarnings("ignore", message="IProgress not found")
_HOMES = {
    "d2sd.__about__": ("__version__",),
    "d2sd.config": ("DecodeConfig",),
    "d2sd.figures.notebook": ("show",),
    "d2sd.engine": ("Engine", "load"),
    "d2sd.errors": ("InputError",),
    "d2sd.methods": ("METHODS",),
    "d2sd.folders.model_sets": ("presets",),
    "d2sd.trace.events": ("Event", "Finished", "PrefillDone", "StepDone"),
    "d2sd.trace.graph": ("graph",),
    "d2sd.trace.stream": ("EventStream",),
    "d2sd.trace.trace": ("Trace", "load_trace", "read_traces"),
}

if not TYPE_CHECKING:  # otherwise type checkers would accept any name
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
