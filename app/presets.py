"""What the page opens with: example prompts and a recorded run."""

from __future__ import annotations

import gzip
import json
from typing import Any

from app.run_lines import RunLines
from d2sd.__about__ import HOME

ASSETS = HOME / "assets"
OPENING_TRACE = ASSETS / "traces" / "opening.jsonl.gz"
LESSON = ASSETS / "traces" / "lesson.json.gz"
# one for every domain, and one for what the bundled nets cannot do
EXAMPLES = {
    "Story": "There was a girl called Lily who had a red kite. One day, Lily took the kite to the park.",
    "Ask a story": "Tell me a story about a dragon.",
    "Sum": "Question: Mia has 24 shells. She finds 38 more. How many shells does Mia have now?\nAnswer:",
    "Question": "Max has 53 cards and gives away 17. How many cards are left?",
    "Python": (
        "# Task: With a loop: take a list called prices, keep the numbers above 12 and then return their sum.\n"
        "def prices_large_total(prices):"
    ),
    "Else": "What is photosynthesis?",
}
BUNDLED = "tiny"
TINY = "writes children’s stories, works small sums, completes small Python functions"
TINY_SAID = (
    f"The bundled model, “{BUNDLED}”, was trained here from nothing on a few plain things: it {TINY}. It knows nothing of the "
    "world and makes mistakes: asked anything else, it mostly says that it is a very small model and tells a story; it is here to "
    "show how drafts live and die, not to be believed."
)


def opening() -> RunLines:
    """The recorded run that the page shows before anything is run; an empty one if none is there."""
    if not OPENING_TRACE.exists():
        return RunLines()
    return RunLines.of(gzip.decompress(OPENING_TRACE.read_bytes()).decode().split("\n"))


def lesson() -> dict[str, Any]:
    """What the tour is about: ``lines`` of a recorded run and, where they were recorded, ``live`` settings of it; the run
    of Explore where there is no other."""
    if not LESSON.exists():
        return {"lines": opening().lines(), "live": None}
    return json.loads(gzip.decompress(LESSON.read_bytes()))
