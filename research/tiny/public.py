"""Documents of public data sets as training text: TinyStories, SVAMP, GSM8K, MBPP and hand-written instructions.

A data folder holds the files as their authors publish them, anywhere below it. What is held out is a fixed share of
every source: every 40th story and every fifth problem, program or instruction (``held_out``).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from d2sd.errors import InputError
from d2sd.train.data import PLAIN_PUNCTUATION, read_documents
from research.tiny.synthetic.worked import Wording, Worked, worked_steps

STORIES_HELD_OUT, PROBLEMS_HELD_OUT = 40, 5
_LONGEST_PROGRAM, _LONGEST_STORY = 12, 4_000
_CALCULATION = re.compile(r"<<[^<>]*>>")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def held_out(index: int, share: int) -> bool:
    """Whether the ``index``-th document of a source is held out: every ``share``-th is."""
    return index % share == 0


def _find(folder: Path, name: str) -> list[Path]:
    files = sorted(folder.rglob(name))
    if not files:
        raise InputError(f"there is no {name} under {folder}; give the folder that holds the public data with --data")
    return files


def _rows(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    rows = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.split("\n") if line]
    return [{k: v.translate(PLAIN_PUNCTUATION) if isinstance(v, str) else v for k, v in row.items()} for row in rows]


def stories(folder: Path) -> list[str]:
    """TinyStories (``tinystories*.txt``), one string a story, paragraphs parted by one line break."""
    found: list[str] = []
    for path in _find(folder, "tinystories*.txt"):
        parts = list(read_documents(str(path)))
        if len(parts) == 1:  # one story a paragraph group: single line breaks part stories, blank lines do not
            parts = re.split(r"(?<!\n)\n(?!\n)", parts[0])
        found += [re.sub(r"\s*\n\s*", "\n", part.strip()) for part in parts]
    return [s for s in dict.fromkeys(found) if 200 < len(s) < _LONGEST_STORY and s.isascii()]


def problems(folder: Path) -> list[Wording]:
    """SVAMP (``svamp.json``): word problems whose numbers can be drawn anew."""
    found = []
    for row in _rows(_find(folder, "svamp.json")[0]):
        body = row["Body"].strip()
        question = f"{body}{'' if body.endswith(('.', '?', '!')) else ','} {row['Question'].strip()}"
        question = re.sub(r", (\w)", lambda m: f", {m[1].lower()}", question) if body[-1:] not in ".?!" else question
        found.append(
            Wording(
                re.sub(r"\s+", " ", question).replace(" ' ", "'s "),
                ast.parse(row["Equation"].strip(), mode="eval").body,
            )
        )
    return found


def worked_problems(folder: Path) -> list[Worked]:
    """GSM8K training problems (``gsm8k_train.jsonl``) of at most two steps over whole numbers."""
    found = []
    for row in _rows(_gsm8k(folder)):
        steps, _, answer = row["answer"].partition("####")
        few = len(_CALCULATION.findall(steps)) <= 2
        if few and answer.strip().isdigit() and "." not in "".join(_NUMBER.findall(steps)):
            lines = [line.strip() for line in _CALCULATION.sub("", steps).splitlines() if line.strip()]
            text = " ".join(line if line.endswith(".") else f"{line}." for line in lines)
            found.append(Worked(row["question"].strip(), text, int(answer)))
    return found


def unanswered_questions(folder: Path) -> list[str]:
    """The questions of all other GSM8K training problems, whose answers are no training text."""
    short = {worked.question for worked in worked_problems(folder)}
    return [q for row in _rows(_gsm8k(folder)) if (q := row["question"].strip()) not in short]


def _gsm8k(folder: Path) -> Path:
    return _find(folder, "gsm8k_train.jsonl")[0]


def programs(folder: Path) -> list[tuple[str, str]]:
    """MBPP (``mbpp.jsonl``): (what to write, short Python function), four spaces a level."""
    found = []
    for row in _rows(_find(folder, "mbpp.jsonl")[0]):
        code = row["code"].replace("\r", "").replace("\t", "    ").strip()
        code = "\n".join(line.rstrip() for line in code.splitlines() if line.strip())
        try:
            tree = ast.parse(code)
        except SyntaxError:
            continue
        code = ast.unparse(tree)
        if len(code.splitlines()) <= _LONGEST_PROGRAM and len(code) < 600 and code.isascii():
            found.append((re.sub(r"\s+", " ", row["text"]).strip(), code + "\n"))
    return found


def instructions(folder: Path) -> list[str]:
    """Everyday instructions (``self_instruct.jsonl``) and first chat turns (``mt_bench.jsonl``) as people word them."""
    texts = [row["instruction"] for row in _rows(_find(folder, "self_instruct.jsonl")[0])]
    texts += [row["turns"][0] for row in _rows(_find(folder, "mt_bench.jsonl")[0])]
    return [t.strip() for t in texts if len(t) < 400]


def split(items: list[Any], share: int) -> tuple[list[Any], list[Any]]:
    """(training, held out)."""
    marked = [(held_out(i, share), item) for i, item in enumerate(items)]
    return [x for out, x in marked if not out], [x for out, x in marked if out]


def checked(wordings: list[Wording]) -> Iterator[Wording]:
    """The wordings whose equation uses whole numbers of their question and comes to a whole number."""
    for wording in wordings:
        if worked_steps(wording.equation) is not None:
            yield wording
