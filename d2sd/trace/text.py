"""Text functions: labels of single tokens, incremental decoding, escaping for terminals, and progress on stderr."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TextIO

BROKEN = "\ufffd"
WINDOW = 16
SECONDS = 10.0  # interval of progress lines, and delay of the first line
LINE = "{desc}: {n_fmt} of {total_fmt}, {elapsed} elapsed, {remaining} left{postfix}"
MARKS = {" ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥"}


class TokenTexts(dict[int, str]):
    """Labels of single tokens by token id, computed on first use.

    A label is the decoded text of the token. A token that decodes to an incomplete character or to nothing has the tokenizer's
    internal spelling as label. An id that the tokenizer does not have, such as a padding row of the embedding, has ``<id>``.
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
    """Decodes tokens one by one. Each call of ``feed`` returns the text that the token adds; joined, these pieces are the whole text.

    If a token ends inside a character, its piece is empty. The character is in the piece of the token that completes it.
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
    """Returns JSON-ready data in which all texts are ``encodable``."""
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


def replace_unencodable() -> None:
    """Makes stdout and stderr write ``?`` for each character that their encoding lacks, such as cp1252 in redirects on Windows.

    One character for one keeps tables aligned.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # streams that replace the standard ones may lack the method
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def clip(text: str, most: int) -> str:
    """Returns the text, cut to ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def visible(text: str, most: int = 24) -> str:
    """Returns a token's text with visible marks for whitespace, cut to ``most`` characters; safe for a terminal."""
    return clip("".join(MARKS.get(c) or escaped(c) for c in text[: most + 1]) or "∅", most)


class _Lines:
    """File for a tqdm bar that writes each update on a new line instead of over the previous one."""

    def __init__(self, file: TextIO):
        self._file = file

    def write(self, text: str) -> None:
        if line := text.strip():
            self._file.write(f"{line}\n")

    def flush(self) -> None:
        self._file.flush()


def duration(seconds: float) -> str:
    """Returns a duration in minutes and seconds, such as 2:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def progress(items: Iterable[Any] | None = None, **options: Any) -> Any:
    """Returns a tqdm progress bar over the items on stderr. If stderr is not a terminal, it prints a line every ten seconds instead.

    items: the items; None if the caller updates the bar.
    options: arguments of ``tqdm``. A ``bar_format`` is also the format of the lines.
    """
    from tqdm import tqdm  # imported here, since reading traces does not need it

    if sys.stderr.isatty():
        return tqdm(items, file=sys.stderr, **options)
    plain: dict[str, Any] = {"mininterval": SECONDS, "delay": SECONDS, "miniters": 1}
    return tqdm(items, file=_Lines(sys.stderr), **{"bar_format": LINE, **options, **plain})


def aligned(rows: Sequence[Sequence[str]], align: Callable[[str, int], str] = str.ljust) -> list[str]:
    """Returns the rows of a table as lines of text with aligned columns. align: pads a cell of any column but the first."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return ["  ".join((row[0].ljust(first), *map(align, row[1:], others))).rstrip() for row in rows]
