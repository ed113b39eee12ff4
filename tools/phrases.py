"""Lists phrases that make sentences hard to read, in Python files, scripts and Markdown.

``python -m tools.phrases [PATH ...]`` prints file, line and phrase of each occurrence, and the number of each phrase at the
end. A hit is a sentence to read again, not an error: the exit status is always 0.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

SUFFIXES = (".py", ".js", ".md")
SKIPPED = ("docs/python.md", "tools/phrases.py")  # generated; this list
PHRASES = (
    # relative clauses without a noun
    "what is to",
    "what is not",
    "what is needed",
    "what was",
    "what stands for",
    "what came of",
    "that of the",
    "that of a",
    "those of",
    "those that",
    "those who",
    "who asked",
    # pronouns and quantities without a noun
    "nothing of the kind",
    "of the kind",
    "of one's own",
    "of its own",
    "of their own",
    "so many",
    "as many as it",
    "none is",
    "none of them",
    "as they are",
    "as it is",
    # constructions that native speakers rarely write
    "anybody's file",
    "with which",
    "in vain",
    "to be had",
    "comes about",
    "is told",
    "is said",
    "as far as",
    "at once:",
    "the way of a",
    "where one is",
    "not any more",
    "stands for",
)
BETWEEN = r"[\s#*/]+"  # words of a phrase may be on two lines of a comment
PATTERN = re.compile(
    "|".join(rf"\b{BETWEEN.join(map(re.escape, phrase.split()))}(?!\w)" for phrase in PHRASES), re.IGNORECASE
)


def main(paths: list[str]) -> None:
    files = subprocess.run(
        ["git", "ls-files", "--", *paths], capture_output=True, encoding="utf-8", check=True
    ).stdout.splitlines()
    counts: Counter[str] = Counter()
    for name in files:
        if not name.endswith(SUFFIXES) or name in SKIPPED:
            continue
        text = Path(name).read_text(encoding="utf-8")
        for match in PATTERN.finditer(text):
            phrase = " ".join(re.split(BETWEEN, match[0])).lower()
            counts[phrase] += 1
            print(f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {phrase}")
    for phrase, count in counts.most_common():
        print(f"{count:4} {phrase}")


if __name__ == "__main__":
    main(sys.argv[1:])
