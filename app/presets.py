"""Example prompts, and the recorded runs that come with the page."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import d2sd
from d2sd.__about__ import HOME
from d2sd.trace.run import RecordedRun

TRACES = HOME / "assets" / "traces"
OPENING_TRACE = TRACES / "opening.jsonl.gz"
SECOND_TRACE = TRACES / "second.jsonl.gz"  # run of another model, shown by a button
LESSON = TRACES / "lesson.json.gz"  # replays of the opening run (``d2sd.replay.grid``)
FIRST = "smollm2"  # published chat model; the default if ``OPENING_TRACE`` is a run of it
BUNDLED = "tiny"  # the repository has all its weights
DSPARK = "tiny with DSpark"  # the same target with a drafter that has a confidence head
OWN = (BUNDLED, DSPARK)
CHAT_EXAMPLES = {
    "Code": "Write a Python function that returns the largest number of a list.",
    "World": "Why is the sky blue?",
    "Advice": "How can I fall asleep more easily?",
    "Story": "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "Arithmetic": "A baker makes 24 rolls and sells 17 of them. How many rolls are left? Explain step by step.",
}
# One prompt per domain of the bundled models, and one prompt that these models cannot answer.
EXAMPLES = {
    "Story": "One day, a small bear climbed a tall tree and",
    "Ask a story": "Tell me a story about a dragon.",
    "Sum": "Question: Mia has 24 shells. She finds 38 more. How many shells does Mia have now?\nAnswer:",
    "Question": "Max has 53 cards and gives away 17. How many cards are left?",
    "Python": (
        "# Task: With a loop: take a list called prices, keep the numbers above 12 and then return their sum.\n"
        "def prices_large_total(prices):"
    ),
    "Too hard": "What is photosynthesis?",
}
TINY = "writes children’s stories, solves small sums, completes small Python functions"
TINY_SAID = (
    f"The bundled model, “{BUNDLED}”, was trained from scratch for a few simple tasks: it {TINY}. It has no knowledge of the world "
    "and makes mistakes. To other prompts, it mostly answers that it is a very small model and tells a story. Its purpose is to "
    "show how drafts are accepted and rejected, not to give correct answers."
)

FIRST_SAID = (
    "This is SmolLM2-135M-Instruct, a small published chat model (Apache-2.0). It answers questions in plain sentences, and "
    "many answers are correct. Check them: with 135 million parameters, it also makes mistakes and states them confidently."
)


@cache
def first_model() -> str:
    """Returns the model of the opening run if it is present, otherwise the bundled model."""
    name = opening().header.get("models", {}).get("preset")
    return name if name in d2sd.presets() else BUNDLED


def examples(model: str) -> dict[str, str]:
    return EXAMPLES if model in OWN else CHAT_EXAMPLES


def prompt_set(model: str) -> str:
    return "heldout" if model in OWN else "chat"


def opening() -> RecordedRun:
    """Returns the recorded run that the page opens with. If there are replays of this run with other K and γ, they are included."""
    run = _recorded(OPENING_TRACE)
    if (replays := lesson()).get("run") == run.header.get("run"):
        run.append([replays])
    return run


def second() -> RecordedRun:
    return _recorded(SECOND_TRACE)


def second_label(run: RecordedRun) -> str:
    model = run.header.get("models", {}).get("preset")
    return f"A recording with a {'chat' if model == FIRST else 'tiny'} model"


def _recorded(path: Path) -> RecordedRun:
    return RecordedRun.read(gzip.decompress(path.read_bytes()))


def lesson() -> dict[str, Any]:
    return json.loads(gzip.decompress(LESSON.read_bytes())) if LESSON.exists() else {}
