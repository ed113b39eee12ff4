"""Self-made training text: worded sums and small Python functions.

Every document is generated from our own grammars with only the standard library,
so the bundled demonstration model can be retrained from a seed alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

from .code import python_function
from .sums import worded_sum

__all__ = ["GENERATORS", "documents", "prompt_of", "python_function", "worded_sum"]

GENERATORS: dict[str, Callable[[random.Random], str]] = {
    "sums": worded_sum,
    "code": python_function,
}

_MAX_REPEATS = 10_000  # in a row
_DEF_LINE = re.compile(r"^def .*:\n", re.MULTILINE)


def documents(domain: str, count: int, seed: int) -> Iterator[str]:
    """Yield `count` distinct documents of a domain, the same ones for the same seed."""
    generate = GENERATORS[domain]
    rng = random.Random(f"{domain}:{seed}")
    seen: set[str] = set()
    repeats = 0
    while len(seen) < count:
        text = generate(rng)
        if text in seen:
            repeats += 1
            if repeats > _MAX_REPEATS:
                raise ValueError(f"{domain}: too few distinct documents for count={count}")
            continue
        repeats = 0
        seen.add(text)
        yield text


def prompt_of(document: str) -> str:
    """Return the part of a document that a person would type."""
    if document.startswith("Question:"):
        head, _, _ = document.partition("Answer:")
        return head + "Answer:"
    match = _DEF_LINE.search(document)
    # without the line break: tokenizers join it with the indentation that follows
    return document[: match.end()].rstrip("\n") if match else document
