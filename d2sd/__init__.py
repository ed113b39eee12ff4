"""D²SD and its relatives: speculative decoding with block drafters, as a stream of inspectable steps.

Names are looked up when they are first used: reading traces needs no torch.
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
    from d2sd.figures.viewer import show
    from d2sd.folders.loading import presets
    from d2sd.methods import METHODS
    from d2sd.trace.events import Event, Finished, PrefillDone, StepDone
    from d2sd.trace.graph import graph
    from d2sd.trace.trace import Trace, load_trace, read_traces

__all__ = [
    "METHODS",
    "DecodeConfig",
    "Engine",
    "Event",
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
# Torch's threads wait for each other some hundred times a step. They spin for about the time between two products, then sleep:
# threads that spin for long are slow if another program needs a core. SmolLM2 on two cores, by the number of turns: 1,000: 37
# tokens/s (30 beside a program that kept one core busy); 2,000: 48 (23); 3,000: 54 (17); 5,000: 54 (16); 30,000: 46 (6).
# Read when torch is imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    os.environ.setdefault("KMP_BLOCKTIME", "0")  # libomp's
# Progress bars are as good without the widgets of a notebook, which tqdm asks for whenever something imports it.
warnings.filterwarnings("ignore", message="IProgress not found")
_HOMES = {
    "d2sd.__about__": ("__version__",),
    "d2sd.config": ("DecodeConfig",),
    "d2sd.figures.viewer": ("show",),
    "d2sd.engine": ("Engine", "load"),
    "d2sd.errors": ("InputError",),
    "d2sd.methods": ("METHODS",),
    "d2sd.folders.loading": ("presets",),
    "d2sd.trace.events": ("Event", "Finished", "PrefillDone", "StepDone"),
    "d2sd.trace.graph": ("graph",),
    "d2sd.trace.trace": ("Trace", "load_trace", "read_traces"),
}

if not TYPE_CHECKING:  # a type checker that saw this would let any name pass
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
