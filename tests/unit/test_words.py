"""Texts for people name one thing by one word: replaced words do not come back, on the page, in messages and in docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from d2sd.__about__ import HOME

# pattern of a replaced text → the text to write instead
EVERYWHERE = {
    r"(?<!very )(?<!of a )\b[Ss]mall model\b": "drafter",
    r"\b([Pp]lain (decoding )?(steps|passes)|[Aa] plain (decoding )?(step|pass))\b": "one-token pass",
    r"\b(committed tokens|tokens (\w+ )?committed|(step|steps|cycle|server|prefill) commits?(ted)?)\b": "written",
    r"\b(model|target|it) wanted\b": "chose",
    r"\bECE above chance\b": "calibration error beyond chance",
    r"\bRepaired\b": "rescued",
    r"\bCopy challenge\b": "Copy link to challenge others",
}
# "target" and "plain decoding" are words of commands and settings, and "brings … costs" of “When does it pay?”
ON_PAGE = {
    **EVERYWHERE,
    r"(?<!\()\b[Pp]lain decoding\b(?! in settings)": "one by one",
    r"\bunit: a pass\b|\bpasses over one\b": "one-token pass",
    r"\bcosts? (?!one-token)[^.:]*(?<!one-token )\bpass(es)?\b": "one-token passes",
    r"\b[Tt]he target\b": "the large model",
    r"\bwanted\b": "chose; instead",
    r"\btokens [^.]*\bkept\b": "accepted",
    r"\b[Cc]ommit(s|ted)?\b": "written",
    r"\b(\d+|all|is|are) right\b": "accepted",
    r"\bfirst wrong\b": "rejected",
    r"\b(repaired|gained)\b": "rescued; tokens per re-draft",
    r"\bwhat if\?": "re-draft there",
    r"\bmachine of the recording\b": "this machine, or its name",
    r"^Else$": "Too hard",
    r"^(Build tree|First draft)$": "the name of the stage",
}
FIELDS = ("trace/checks.py", "trace/trace.py")  # their messages name fields of the trace
WRITTEN = ("python.md", "trace-format.md")  # these pages name functions and fields
HOLE = re.compile(r"\$\{[^{}]*\}")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')
COMMENT = re.compile(r"(^|\s)//[^\n]*|/\*.*?\*/", re.DOTALL)
PROSE = re.compile(r"[a-zé’,;:]+ [a-zé’]|^[,;] |^[A-Z][a-z]+( [a-z]+)*$")  # neither a name nor a list of classes


def scripts() -> Iterator[tuple[str, str]]:
    """Names of the page's scripts, and each text in them; values are replaced by 0."""
    for folder in ("app", "assets/viewer"):
        for path in sorted((HOME / folder).rglob("*.js")):
            source, inner = COMMENT.sub("", path.read_text(encoding="utf-8")), list[str]()
            while holes := HOLE.findall(source):
                inner += holes
                source = HOLE.sub("0", source)
            for match in LITERAL.finditer("\n".join([source, *inner])):
                yield path.name, match[1] or match[2] or ""


def strings(folder: str) -> Iterator[tuple[str, str]]:
    """Names of modules, and each string in them except docstrings."""
    for path in sorted((HOME / folder).rglob("*.py")):
        if not path.as_posix().endswith(FIELDS):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                    yield path.name, node.value


def pages() -> Iterator[tuple[str, str]]:
    """Names of documents, and their paragraphs."""
    for path in (HOME / "README.md", *sorted((HOME / "docs").glob("*.md"))):
        if path.name not in WRITTEN:
            yield from ((path.name, part) for part in path.read_text(encoding="utf-8").split("\n\n"))


@pytest.mark.parametrize(
    ("texts", "words"),
    [(scripts, ON_PAGE), (lambda: strings("app"), ON_PAGE), (lambda: strings("d2sd"), EVERYWHERE), (pages, EVERYWHERE)],
    ids=["scripts", "page", "commands", "docs"],
)
def test_texts_use_no_replaced_word(texts, words):
    found = [
        f"{name}: {' '.join(text.split())[:80]!r}: write {instead!r}"
        for name, text in texts()
        for pattern, instead in words.items()
        if PROSE.search(text) and re.search(pattern, text)
    ]
    assert found == []
