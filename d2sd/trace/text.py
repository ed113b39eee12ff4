"""Text functions: labels of single tokens, incremental decoding, escaping for terminals, and progress on stderr."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

BROKEN = "\ufffd"
WINDOW = 16
SECONDS = 10.0  # interval of progress lines, and delay of the first line
LINE = "{desc}: {n_fmt} of {total_fmt}, {elapsed} elapsed, {remaining} left{postfix}"
MARKS = {" ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥"}


class TokenTexts(dict[int, str]):
    """Cached labels of single tokens: the decoded text or, for an incomplete character, the tokenizer's spelling.

    The label of an id that the tokenizer does not know, such as a padding row of the embedding, is ``<id>``.
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
    """Decodes tokens one by one; the concatenated pieces are the decoded text.

    If a token ends inside a character, its piece is empty; the character is in the piece of the token that completes it.
    Only a window of recent tokens is decoded, so the cost per token does not grow with the length of the text.
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
    """Returns the text with lone surrogates replaced by question marks. JSON may hold them, but UTF-8 cannot encode them."""
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
    """Returns the text on one line, with invisible characters escaped (``\\x1b``, ``\\u202e``); safe for a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible(text: str, most: int = 24) -> str:
    """Returns a token's text with visible marks for whitespace, cut to ``most`` characters; safe for a terminal."""
    shown = "".join(MARKS.get(c) or escaped(c) for c in text[: most + 1]) or "∅"
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the rows of a table as lines. Each cell is padded to the width of its column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


class _Lines:
    """File for a tqdm bar that writes each update on a new line instead of over the previous one."""

    def __init__(self, file: TextIO):
        self._file = file

    def write(self, text: str) -> None:
        if line := text.strip():
            self._file.write(f"{line}\n")

    def flush(self) -> None:
        self._file.flush()


def progress(items: Iterable[Any] | None = None, **options: Any) -> Any:
    """Returns a tqdm bar over the items on stderr; options as for tqdm.

    If stderr is not a terminal, the bar prints a line every ten seconds instead.
    """
    from tqdm import tqdm  # imported here, since reading traces does not need it

    if sys.stderr.isatty():
        return tqdm(items, file=sys.stderr, **options)
    plain: dict[str, Any] = {"mininterval": SECONDS, "delay": SECONDS, "miniters": 1, "bar_format": LINE}
    return tqdm(items, file=_Lines(sys.stderr), **{**options, **plain})
