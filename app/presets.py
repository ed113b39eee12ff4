"""What the page opens with: example prompts and a recorded run."""

from __future__ import annotations

import gzip

from app.run_lines import RunLines
from d2sd.__about__ import HOME

ASSETS = HOME / "assets"
OPENING_TRACE = ASSETS / "traces" / "opening.jsonl.gz"
EXAMPLES = {
    "Story: kite": "There was a girl called Lily who had a red kite. One day, Lily took the kite to the park.",
    "Story: fox": "A small fox named Rusty lived with his mom near the lake. Rusty wanted to learn how to swim.",
    "Sum: shells": "Question: Mia has 24 shells. She finds 38 more. How many shells does Mia have now?\nAnswer:",
    "Sum: bags": (
        "Question: Max has 53 cards. He gives away 17 and puts the rest into 4 equal bags. How many cards are in each one?\n"
        "Answer:"
    ),
    "Code: prices": (
        "# Task: With a loop: take a list called prices, keep the numbers above 12 and then return their sum.\n"
        "def prices_large_total(prices):"
    ),
}


def opening() -> RunLines:
    """The recorded run that the page shows before anything is run; an empty one if none is there."""
    if not OPENING_TRACE.exists():
        return RunLines()
    return RunLines.of(gzip.decompress(OPENING_TRACE.read_bytes()).decode().split("\n"))
