"""What the page offers: models, example prompts, the recorded run that it opens with."""

from __future__ import annotations

import gzip
import os
from functools import lru_cache
from pathlib import Path

import d2sd

ASSETS = Path(__file__).resolve().parent.parent / "assets"
OPENING_TRACE = ASSETS / "traces" / "opening.jsonl.gz"
EXAMPLES = {
    "Story: a lost kite": "There was a girl called Lily who had a red kite. One day, Lily took the kite to the park.",
    "Story: a new friend": "A little rabbit named Pip lived near the river. Pip wanted a friend.",
    "Sum: shells": (
        "Question: Mia has 24 shells. She gives 9 to Tom and then finds 6 more. How many shells does Mia have now?\n"
        "Answer:"
    ),
    "Sum: rolls": "Question: A baker puts 7 rolls in each bag and fills 8 bags. How many rolls is that?\nAnswer:",
    "Code: prices": (
        "# Task: With a loop: take a list called prices, keep the numbers above 12 and then return their sum.\n"
        "def prices_large_total(prices):"
    ),
}


def on_space() -> bool:
    """Whether this is a public Hugging Face Space, where visitors may not name folders of the machine."""
    return "SPACE_ID" in os.environ


def opening_trace() -> str:
    """The recorded run that the page shows before anything is run, as JSON lines; empty if none is there."""
    return gzip.decompress(OPENING_TRACE.read_bytes()).decode() if OPENING_TRACE.exists() else ""


@lru_cache(maxsize=2)
def engine(model: str) -> d2sd.Engine:
    """The loaded models of a preset or folder; the two most recent stay loaded. Raises ``InputError``."""
    if on_space() and model not in d2sd.presets():
        raise d2sd.InputError(f"this public page offers only the bundled models: {', '.join(d2sd.presets())}")
    return d2sd.load(model)
