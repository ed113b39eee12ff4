"""Collects prompts for training drafters of a chat model from published data sets: ``python -m tools.training_prompts FOLDER OUT``.

FOLDER contains any of these files: GSM8K (``gsm8k_train.jsonl``), MBPP (``mbpp.jsonl``), SVAMP (``svamp.json``), TinyStories
(``tinystories*.txt``, stories separated by ``<|endoftext|>``), and other questions (``asked*.jsonl``, lines with ``prompt``). One
JSON line per prompt is written to OUT, without duplicates. Prompts of the bundled sets and of the files after ``--without`` are
left out, since drafters are measured on those prompts.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from d2sd.bench.prompts import read_prompts
from d2sd.train.files import read_jsonl
from d2sd.train.text import repeat_key

STORIES = 4000
MEASURED = ("chat", "heldout")
BEGINNING = re.compile(r"\s*((?:[^.!?]*[.!?]+){2})")  # two sentences


def prompts_of(folder: Path) -> Iterator[str]:
    """Yields the prompts of the data sets in a folder."""
    for pattern, field in (("gsm8k*.jsonl", "question"), ("mbpp*.jsonl", "text"), ("*asked*.jsonl", "prompt")):
        for path in sorted(folder.glob(pattern)):
            yield from (row[field] for row in read_jsonl(path, field))
    for path in sorted(folder.glob("svamp*.json")):
        yield from (
            f"{row['Body'].rstrip('. ')}. {row['Question']}" for row in json.loads(path.read_text(encoding="utf-8"))
        )
    stories = (
        s
        for path in sorted(folder.glob("tinystories*.txt"))
        for s in path.read_text(encoding="utf-8").split("<|endoftext|>")
    )
    begun = (match[1].strip() for match in map(BEGINNING.match, stories) if match)
    yield from (f"Continue this story: {text}" for text in islice(begun, STORIES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--without", type=Path, nargs="+", default=[], help="JSON lines with prompts to leave out")
    given = parser.parse_args()
    left_out = {repeat_key(prompt.text) for name in MEASURED for prompt in read_prompts(name)}
    for path in given.without:
        for row in read_jsonl(path):
            texts = [row.get("prompt"), row.get("instruction"), *row.get("turns", [])]
            left_out |= {repeat_key(text) for text in texts if isinstance(text, str)}
    texts_by_key = {repeat_key(text): text for text in prompts_of(given.folder)}
    kept = [text for key, text in texts_by_key.items() if key and key not in left_out]
    with given.out.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"prompt": text}, ensure_ascii=False) + "\n" for text in kept)
    print(f"{len(kept)} prompts, {len(texts_by_key) - len(kept)} left out: {given.out}")


if __name__ == "__main__":
    main()
