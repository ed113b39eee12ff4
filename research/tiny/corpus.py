"""The training text of the bundled nets: real stories, worded questions, small programs, and what else people type."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from d2sd.train.data import normalise
from research.tiny import public
from research.tiny.synthetic import asked, documents
from research.tiny.synthetic.worked import Wording, Worked, reworded

SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
QUESTION_FORMS = ("Question: {q}\nAnswer: {a}", "{q}\n{a}", "{q}\n{a}", "Q: {q}\nA: {a}")


@dataclass(frozen=True, slots=True)
class Sources:
    """The public data, split into what is trained on and what is held out.

    unanswered: questions that are no training text of the target, only prompts for it; none are held out.
    """

    stories: list[str]
    wordings: list[Wording]
    worked: list[Worked]
    programs: list[tuple[str, str]]
    instructions: list[str]
    unanswered: list[str]

    @classmethod
    def read(cls, folder: Path) -> tuple[Sources, Sources]:
        """(training, held out) of the files under ``folder``."""
        few, many = public.PROBLEMS_HELD_OUT, public.STORIES_HELD_OUT
        parts = [
            public.split(public.stories(folder), many),
            public.split(list(public.checked(public.problems(folder))), few),
            public.split(public.worked_problems(folder), few),
            public.split(public.programs(folder), few),
            public.split(public.instructions(folder), 2),
            (public.unanswered_questions(folder), []),
        ]
        train, held = (cls(*(part[i] for part in parts)) for i in (0, 1))
        seen = {normalise(s[:200]) for s in train.stories}
        known = {normalise(text) for program in train.programs for text in program}  # tasks and code come several times
        return train, cls(
            [s for s in held.stories if normalise(s[:200]) not in seen],
            held.wordings,
            held.worked,
            [program for program in held.programs if known.isdisjoint(map(normalise, program))],
            held.instructions,
            held.unanswered,
        )


@dataclass(frozen=True, slots=True)
class Mix:
    """How much of each kind; counts are documents, shares are of the stories.

    reads: times that the public stories are read; asked: share of them that answer a request; strange: share that
    follow an instruction, a greeting or another language.
    """

    seed: int
    reads: int = 1
    asked: float = 0.12
    strange: float = 0.05
    sums: int = 12_000
    wordings: int = 18_000
    worked_reads: int = 1
    code: int = 6_000
    program_reads: int = 2


def training_text(sources: Sources, mix: Mix) -> list[str]:
    """All documents of a mix, shuffled; the same ones for the same seed."""
    rng = random.Random(mix.seed)
    train: list[str] = []
    common = asked.topics_of(sources.stories)
    for _ in range(mix.reads):
        train += [_told(s, asked.topic_of(s, common, len(sources.stories)), sources, mix, rng) for s in sources.stories]
    train += [_question(d, rng) for d in documents("sums", mix.sums, mix.seed)]
    drawn = (reworded(rng.choice(sources.wordings), rng) for _ in range(mix.wordings))
    train += [question_text(w, rng) for w in drawn if w is not None]
    train += [question_text(w, rng) for _ in range(mix.worked_reads) for w in sources.worked]
    train += [_program(d, rng) for d in documents("code", mix.code, mix.seed)]
    train += [program_text(task, code, rng) for _ in range(mix.program_reads) for task, code in sources.programs]
    rng.shuffle(train)
    return train


def begun_anywhere(stories: Sequence[str], seed: int) -> list[str]:
    """The same stories from some sentence on, in the first two thirds of each; paragraphs as in ``training_text``."""
    rng = random.Random(seed)
    texts = []
    for story in stories:
        starts = [m.end() for m in SENTENCE_END.finditer(story)] or [0]
        text = story[rng.choice(starts[: max(1, 2 * len(starts) // 3)]) :]
        texts.append(text.replace("\n", "\n\n") if rng.random() < 0.4 else text)
    return texts


def _told(story: str, topic: str | None, sources: Sources, mix: Mix, rng: random.Random) -> str:
    """A story as it is, or as the answer to something; paragraphs parted by one line break or by two."""
    text = story.replace("\n", "\n\n") if rng.random() < 0.4 else story
    draw = rng.random()
    if draw < mix.strange:
        typed, answers = asked.strange(sources.instructions, rng)
        return f"{typed}\n{rng.choice(answers)}\n{text}"
    if topic is not None and draw < mix.strange + mix.asked:
        return asked.asked_for(text, topic, rng)
    return text


def question_text(problem: Worked, rng: random.Random) -> str:
    """A worded question and its worked answer."""
    answer = f"{problem.work} So the answer is {problem.answer}."
    return rng.choice(QUESTION_FORMS).format(q=problem.question, a=answer)


def _question(document: str, rng: random.Random) -> str:
    """A generated question, in one of the forms."""
    question, _, answer = document.removeprefix("Question: ").partition("\nAnswer: ")
    return rng.choice(QUESTION_FORMS).format(q=question, a=answer)


def program_text(task: str, code: str, rng: random.Random) -> str:
    """A function after its task as a comment or a plain sentence, or with it as its docstring."""
    draw = rng.random()
    if draw < 0.35:
        return f"# Task: {task}\n{code}"
    if draw < 0.6 or '"""' in code:
        return f"{task}\n{code}"
    return re.sub(r"^(def .*:\n)", lambda m: f'{m[1]}    """{task}"""\n', code, count=1, flags=re.MULTILINE)


def _program(document: str, rng: random.Random) -> str:
    """A generated function, in one of the forms."""
    task, _, code = document.removeprefix("# Task: ").partition("\n")
    if rng.random() < 0.3:
        task = f"Write a Python function. {task}"
    return program_text(task, code, rng)
