"""Text of one kind to train on for a moment."""

from __future__ import annotations

import random

NAMES, THINGS = ("Tom", "Mia", "Ann", "Bo"), ("pens", "figs", "red stones", "cards")


def sums(count: int) -> list[str]:
    """Worded sums with their answers, the same ones every time."""
    rng = random.Random(1)
    drawn = [(rng.choice(NAMES), rng.choice(THINGS), rng.randint(2, 99), rng.randint(2, 99)) for _ in range(count)]
    return [
        f"Question: {name} has {a} {things} and gets {b} more. How many {things} are there?\nAnswer: {a} + {b} = {a + b}."
        for name, things, a, b in drawn
    ]


def prompt_of(document: str) -> str:
    """The part that a person would type."""
    return document.partition("Answer:")[0] + "Answer:"
