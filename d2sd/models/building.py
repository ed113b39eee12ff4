"""The lock under which models are built."""

from __future__ import annotations

from threading import RLock

# While transformers builds a model, torch's default dtype, one for the process, is the model's. Of two builds at once, each
# would restore the other's, for good; and modules that a third thread builds would be of that dtype.
BUILDING = RLock()
