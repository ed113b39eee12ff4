"""D²SD and its relatives: speculative decoding with block drafters, as a stream of inspectable steps."""

from d2sd.config import DecodeConfig
from d2sd.decode import Engine
from d2sd.errors import InputError
from d2sd.events import Event, Finished, PrefillDone, StepDone
from d2sd.methods import METHODS
from d2sd.models.loading import load, presets
from d2sd.trace import Trace, load_trace

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
    "load",
    "load_trace",
    "presets",
]
