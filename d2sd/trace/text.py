"""Texts: labels of single tokens, increments of the decoded output, safe spellings, and progress on stderr."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable
from typing import Any, TextIO

BROKEN = "\ufffd"
WINDOW = 16
SECONDS = 10.0  # between lines of progress, and before the first
LINE = "{desc}: {n_fmt} of {total_fmt}, {elapsed} gone, {remaining} left{postfix}"
MARKS = {" ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥"}


class TokenTexts(dict[int, str]):
    """Cached labels of single tokens: readable text, or the tokenizer's spelling of an incomplete character.

    An id that the tokenizer does not know, such as one that pads the embedding, is shown as its number in brackets.
    """

    def __init__(self, tokenizer: Any):
        super().__init__()
        self.tokenizer = tokenizer

    def __missing__(self, token: int) -> str:
        text = str(self.tokenizer.decode([token], skip_special_tokens=False))
        if BROKEN in text or not text:
            spelling = self.tokenizer.convert_ids_to_tokens(token)
            text = f"<{token}>" if spelling is None else str(spelling)
        self[token] = text
        return text


class Detokenizer:
    """Feeds tokens one by one; the returned pieces join to the decoded text.

    A token that ends inside a character returns "" and the character comes with the token that completes it.
    Only a window of recent tokens is decoded, so a step costs the same at any length.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self._window: list[int] = []
        self._shown = ""

    def feed(self, token: int) -> str:
        self._window.append(token)
        text = str(self.tokenizer.decode(self._window, skip_special_tokens=False))
        if text.endswith(BROKEN) and len(self._window) < 2 * WINDOW:
            return ""
        piece = text[len(self._shown) :]
        self._shown = text
        if len(self._window) >= WINDOW and not text.endswith(BROKEN):
            self._window = self._window[-4:]
            self._shown = self.tokenizer.decode(self._window, skip_special_tokens=False)
        return piece


def encodable(text: str) -> str:
    """Returns the text with question marks for what UTF-8 cannot encode: halves of characters, which JSON may hold."""
    return text.encode("utf-8", "replace").decode()


def all_encodable(value: Any) -> Any:
    """Returns JSON-ready data with all its texts made encodable."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {k: all_encodable(v) for k, v in value.items()}
    return [all_encodable(v) for v in value] if isinstance(value, list | tuple) else value


def printable(text: str) -> str:
    """Returns the text without control characters that a terminal would interpret."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


def escaped(text: str) -> str:
    """Returns the text on one line, with everything invisible spelled out (``\\x1b``, ``\\u202e``): safe for a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible(text: str, most: int = 24) -> str:
    """Returns a token with its whitespace marked, cut to ``most`` characters; safe for a terminal."""
    shown = "".join(MARKS.get(c) or escaped(c) for c in text[: most + 1]) or "∅"
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


class _Lines:
    """A file for a bar that puts each of its states on a line of its own instead of writing the next one over it."""

    def __init__(self, file: TextIO):
        self._file = file

    def write(self, text: str) -> None:
        if line := text.strip():
            self._file.write(f"{line}\n")

    def flush(self) -> None:
        self._file.flush()


def progress(items: Iterable[Any] | None = None, **options: Any) -> Any:
    """Returns tqdm's bar over the items, with its options, on stderr.

    Where stderr is no terminal, a job of more than ten seconds prints a line every ten seconds.
    """
    from tqdm import tqdm  # here: whoever only reads traces does without

    if sys.stderr.isatty():
        return tqdm(items, file=sys.stderr, **options)
    plain: dict[str, Any] = {"mininterval": SECONDS, "delay": SECONDS, "miniters": 1, "bar_format": LINE}
    return tqdm(items, file=_Lines(sys.stderr), **{**options, **plain})
