"""The held-out prompts of every domain, split off before training and checked against all text that the target learns from.

Prompts that the drafters alone learn from are drawn anew by the generators of sums and programs; few can coincide.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from d2sd.train.data import normalise
from research.tiny.corpus import Mix, Sources, training_text
from research.tiny.prompts import opening, program_prompt
from research.tiny.synthetic import documents, prompt_of

SEED, PROMPTS = 2_000_003, 60
DOMAINS = ("stories", "questions", "instructions", "sums", "code")
_WORDS = (12, 30)
_KEY = 8  # words: openings are compared by their first ones, which many stories share when they are fewer


def held_out_prompts(data: Path, mixes: Iterable[Mix]) -> Iterator[dict[str, Any]]:
    """Rows with ``domain``, ``prompt`` and, for sums and questions, ``answer``; none stands in the mixes' text."""
    train, held = Sources.read(data)
    seen = {key for mix in mixes for key in map(_key, training_text(train, mix))}
    for domain in DOMAINS:
        kept = 0
        for row in candidates(domain, held):
            if kept < PROMPTS and _key(row["prompt"]) not in seen:
                kept += 1
                yield {"domain": domain, **row}


def candidates(domain: str, held: Sources) -> Iterator[dict[str, Any]]:
    """Prompts of a domain from what was held out, in an order that does not depend on their source."""
    rng = random.Random(SEED)
    rows: list[dict[str, Any]] = []
    if domain == "stories":
        rows = [{"prompt": opening(s, rng, _WORDS)} for s in held.stories]
    elif domain == "questions":
        rows = [{"prompt": w.question, "answer": a} for w, a in _answered(held)]
        rows += [{"prompt": w.question, "answer": w.answer} for w in held.worked]
    elif domain == "instructions":
        rows = [{"prompt": text} for text in held.instructions]
    elif domain == "sums":
        for document in documents("sums", 4 * PROMPTS, SEED):
            rows.append({"prompt": prompt_of(document), "answer": int(document.rsplit(" ", 1)[1].rstrip("."))})
    else:
        made = [d.removeprefix("# Task: ").partition("\n") for d in documents("code", 2 * PROMPTS, SEED)]
        rows = [{"prompt": program_prompt(task, code, rng)} for task, _, code in made[:PROMPTS]]
        rows += [{"prompt": program_prompt(task, code, rng)} for task, code in held.programs[:PROMPTS]]
    rng.shuffle(rows)
    yield from rows


def _answered(held: Sources) -> Iterator[tuple[Any, int]]:
    from research.tiny.synthetic.worked import worked_steps

    for wording in held.wordings:
        worked = worked_steps(wording.equation)
        if worked is not None:
            yield wording, worked[1]


def _key(text: str) -> str:
    """What two texts are compared by: their first words, letters and digits only."""
    words = normalise(text.removeprefix("Question: ").removeprefix("Q: ").removeprefix("# Task: ")).split()
    return " ".join(words[:_KEY]) if len(words) > _KEY else " ".join(words)
