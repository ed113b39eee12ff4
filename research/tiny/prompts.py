"""Prompts whose continuations by the target are what drafters learn from: what visitors type."""

from __future__ import annotations

import random
import re
from collections import Counter

from d2sd.errors import InputError
from research.tiny.corpus import SENTENCE_END, Sources, question_text
from research.tiny.synthetic import asked, documents, prompt_of
from research.tiny.synthetic.grammar import fix_articles
from research.tiny.synthetic.worked import Worked, reworded, varied

OPENING_WORDS = (3, 60)
RARE = 20
_DEF_LINE = re.compile(r"^def .*:$", re.MULTILINE)


def opening(story: str, rng: random.Random, words: tuple[int, int] = OPENING_WORDS) -> str:
    """The first words of a story, cut anywhere, in mid-sentence too."""
    starts = [m.end() for m in re.finditer(r"\S+", story)]
    count = min(rng.randint(*words), max(1, len(starts) // 2))
    return story[: starts[count - 1]]


def unusual_openings(sources: Sources, count: int, rng: random.Random) -> list[str]:
    """Sentences from anywhere in a story in which things have become things that stories rarely tell of ("the paper
    owl"), cut anywhere.

    The rare things are nouns of these stories and questions themselves, seen in fewer than 20 of them.
    """
    questions = [*sources.unanswered, *(problem.question for problem in sources.worked)]
    found = asked.topics_of([*sources.stories, *questions])
    rare = sorted(noun for noun, stories in found.items() if 2 <= stories < RARE)
    if len(rare) < 2:
        raise InputError("these stories speak of too few rare things to make unusual openings of; give more stories")
    sentences = [s for story in sources.stories for s in SENTENCE_END.split(story)]
    prompts: list[str] = []
    while len(prompts) < count:
        sentence = rng.choice(sentences)
        changed = asked.with_things(sentence, lambda _: " ".join(rng.sample(rare, rng.choice((1, 1, 2)))))
        words = fix_articles(changed).split()
        if changed != sentence and len(words) > 3:
            prompts.append(" ".join(words[: rng.randint(2, len(words) - 1)]))
    return prompts


def answered(text: str) -> str:
    """A worded question without its answer, as it stands in training text."""
    for mark in ("\nAnswer:", "\nA:"):
        if mark in text:
            return text.partition(mark)[0] + mark
    return text.partition("\n")[0]


def program_prompt(task: str, code: str, rng: random.Random) -> str:
    """What a visitor types for a function: the task, mostly with the first line of the function."""
    line = code.partition("\n")[0]
    draw = rng.random()
    if draw < 0.5:
        return f"# Task: {task}\n{line}"
    return task if draw < 0.75 else f'{line}\n    """{task}"""'


def drafter_prompts(sources: Sources, wanted: dict[str, int], seed: int) -> list[str]:
    """Prompts of the training sources: story openings, requests and questions (``asked``), worded questions, code, and
    questions that the target has not read, as they are (``unanswered``) and with other numbers and names, beside those
    that it has (``varied``), and ``unusual_openings``."""
    rng, counts = random.Random(seed), Counter(wanted)
    whole, rest = divmod(counts["stories"], len(sources.stories))
    prompts = [opening(s, rng) for s in [*(sources.stories * whole), *rng.sample(sources.stories, rest)]]
    common = asked.topics_of(sources.stories)
    topics = sorted(t for t, n in common.items() if n >= 20)
    for _ in range(counts["asked"]):
        if rng.random() < 0.55:
            prompts.append(asked.strange(sources.instructions, rng)[0])
        else:
            prompts.append(asked.asked_for("", rng.choice(topics), rng).partition("\n")[0])
    for _ in range(counts["questions"]):
        draw = rng.random()
        if draw < 0.4:
            problem = reworded(rng.choice(sources.wordings), rng)
        else:
            problem = rng.choice(sources.worked) if draw < 0.6 else None
        if problem is not None:
            prompts.append(answered(question_text(problem, rng)))
    shown = documents("sums", counts["questions"] // 2, seed)
    prompts += [p if rng.random() < 0.5 else p[len("Question: ") : -len("\nAnswer:")] for p in map(prompt_of, shown)]
    for document in documents("code", counts["code"], seed):
        task, _, code = document.removeprefix("# Task: ").partition("\n")
        prompts.append(program_prompt(task, code, rng))
    prompts += [program_prompt(task, code, rng) for task, code in sources.programs[: counts["code"] // 3]]
    unanswered = rng.sample(sources.unanswered, min(len(sources.unanswered), counts["unanswered"]))
    known = [*sources.unanswered, *(problem.question for problem in sources.worked)]
    unanswered += [varied(rng.choice(known), rng) for _ in range(counts["varied"])]
    prompts += [answered(question_text(Worked(question, "", 0), rng)) for question in unanswered]
    prompts += unusual_openings(sources, counts["unusual"], rng) if counts["unusual"] else []
    return list(dict.fromkeys(p for p in prompts if p.strip()))
