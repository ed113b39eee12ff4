"""Reads the records of a log, up to size limits: JSON lines, a JSON document, or server-sent events, plain or gzip."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import orjson

from d2sd.errors import InputError
from d2sd.trace.files import UNREADABLE, cannot_read, opened
from d2sd.trace.text import escaped
from d2sd.trace.trace import MAX_BYTES, MAX_LINE_BYTES

T = TypeVar("T")
MAX_DOCUMENT = 96 * 10**6
Record = tuple[str, dict[str, Any]]  # place in the log (for error messages), and fields
Bad = Callable[[str], None]  # called with the error message of each skipped record

STREAM_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
LAST = ("usage", "metrics", "sglext", "timings", "meta_info", "model", "id", "stop_type")
PARTS = "parts"  # field of a merged reply that holds all its events, in order
MAX_PARTS = 1_000_000


class NotJSON(InputError):
    """Raised for a log that begins like JSON but is not valid JSON. text: the content of the log."""

    def __init__(self, sentence: str, text: bytes):
        super().__init__(sentence)
        self.text = text


def numbered(path: str | Path, most: int = MAX_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yields the number and content of each nonempty line of a log, which may be gzipped, and in UTF-8 or UTF-16.

    path: path of the log, or ``-`` for standard input. Ctrl-C also ends standard input, since a log in progress has no end.

    Raises ``InputError`` if the log cannot be read, or if the log or a line is too large.
    """
    standard = str(path) == "-"
    try:
        with opened(os.dup(sys.stdin.fileno()) if standard else path) as file:
            size, number = 0, 0
            read = partial(_read_to_interrupt, _line_reader(file)) if standard else _line_reader(file)
            while line := read():
                size, number = size + len(line), number + 1
                if size > most:
                    raise InputError(f"line {number}: the log is larger than {most // 10**6} MB")
                if len(line) > MAX_LINE_BYTES:
                    raise InputError(f"line {number}: longer than {MAX_LINE_BYTES // 2**20} MiB")
                if line.strip():
                    yield number, line
    except UNREADABLE as error:
        raise cannot_read("log", path, error) from None


def _read_to_interrupt(read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except KeyboardInterrupt:
        return b""


def _line_reader(file: Any) -> Callable[[], bytes]:
    """Returns a function that reads the next line. It skips a byte order mark and converts UTF-16, as from PowerShell, to UTF-8."""
    start = file.peek(3)[:3]
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = TextIOWrapper(file, "utf-16", "replace", newline="\n")
        return lambda: text.readline(MAX_LINE_BYTES + 1).encode("utf-8", "replace")
    if start == codecs.BOM_UTF8:
        file.read(3)
    return lambda: file.readline(MAX_LINE_BYTES + 1)


def parsed(line: bytes) -> Any:
    """Returns the content of a line of JSON; None if the line is not JSON."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def record_in(raw: bytes, where: str) -> dict[str, Any]:
    """Returns the record in a line. Raises ``InputError`` if the line is not a JSON object."""
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error})") from None
    if not isinstance(data, dict):
        raise InputError(f"{where}: not a JSON object")
    return data


def read_records(lines: Iterator[tuple[int, bytes]], most: int, bad: Bad | None) -> Iterator[Record]:
    """Yields the records in the lines from ``numbered``. Raises ``InputError`` for a record that is not a JSON object.

    bad: in JSON lines, called with the error message instead; the line is then skipped.
    """
    first = next(lines)
    if first[1].lstrip().startswith(b"[") or (first[1].lstrip().startswith(b"{") and parsed(first[1]) is None):
        yield from _document(first[1], lines, most)
        return
    for number, line in chain([first], lines):
        try:
            yield f"line {number}", record_in(line, f"line {number}")
        except InputError as error:
            if bad is None:
                raise
            bad(str(error))


def _document(line: bytes, lines: Iterator[tuple[int, bytes]], most: int) -> Iterator[Record]:
    """Yields the records of the JSON document that begins with this line."""
    whole, most = bytearray(line), min(most, MAX_DOCUMENT)
    for _, rest in lines:
        whole += rest
        if len(whole) > most:
            raise InputError(f"a log of more than {most // 10**6} MB must be JSON lines")
    try:
        data = orjson.loads(whole)
    except orjson.JSONDecodeError as error:
        raise NotJSON(f"line 1: neither JSON lines nor one JSON document ({error})", bytes(whole)) from None
    for number, entry in enumerate(data if isinstance(data, list) else [data], 1):
        if not isinstance(entry, dict):
            raise InputError(f"entry {number}: not a JSON object")
        yield f"entry {number}", entry


def is_stream(line: bytes) -> bool:
    """Returns whether a line belongs to a stream of server-sent events."""
    return line.lstrip().startswith(STREAM_FIELDS)


def read_stream(lines: Iterable[tuple[int, bytes]]) -> Iterator[Record]:
    """Yields the replies in the lines of an event stream, each merged from its parts (``merged``).

    A reply ends at ``[DONE]``, before a part with a different ``id``, after a part with llama.cpp's ``stop``, or at the end of
    the file. Raises ``InputError`` for a line that cannot be part of an event stream.
    """
    parts: list[dict[str, Any]] = []
    began = 0  # line of the first part
    for number, line in lines:
        line = line.strip()
        if not line.startswith(b"data:"):
            if not line.startswith(STREAM_FIELDS):
                raise InputError(f"line {number}: not a line of an event stream, which begins with data:")
            continue
        body = line[5:].strip()
        part = None if body == b"[DONE]" else record_in(body, f"line {number}")
        # llama.cpp's own interface marks the last part with stop
        if parts and (part is None or part.get("id") != parts[-1].get("id") or parts[-1].get("stop") is True):
            yield f"line {began}", merged(parts)
            parts = []
        if part is not None:
            began = began if parts else number
            parts.append(part)
        if len(parts) > MAX_PARTS:
            raise InputError(f"line {number}: the reply has more than {MAX_PARTS} parts")
    if parts:
        yield f"line {began}", merged(parts)


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns one reply from the parts of its stream: joined texts and ids, and the last values of the fields in ``LAST``.

    The parts are kept under ``PARTS``, since llama.cpp's steps are computed from their running totals.
    """
    reply: dict[str, Any] = {name: part[name] for part in parts for name in LAST if part.get(name) is not None}
    text, ids, finish = "", list[Any](), None
    for part in parts:
        choice = first_choice(part)
        delta = choice.get("delta")
        piece = choice.get("text") or (delta.get("content") if isinstance(delta, dict) else None) or part.get("content")
        text += piece if isinstance(piece, str) else ""
        ids += choice["token_ids"] if isinstance(choice.get("token_ids"), list) else []
        finish = choice.get("finish_reason") or finish
    if any("choices" in part for part in parts):
        reply["choices"] = [{"text": text, "finish_reason": finish, **({"token_ids": ids} if ids else {})}]
    else:
        reply["content"] = text
    prompt_ids = first_choice(parts[0]).get("prompt_token_ids") or parts[0].get("prompt_token_ids")
    if prompt_ids is not None:
        reply["prompt_token_ids"] = prompt_ids
    return {**reply, PARTS: parts}


def first_choice(reply: dict[str, Any]) -> dict[str, Any]:
    """Returns the first entry of a reply's ``choices``; an empty dict if there is none."""
    choices = reply.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def convert(data: Any, kind: type[T], where: str) -> T:
    """Returns the data as an instance of ``kind``. Raises ``InputError``, naming the field, if a field is missing or invalid.

    where: place of the data in the log, for the error message.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        sentence, _, place = str(error).replace("`", "").partition(" - at $")
        field = f"{where}.{place.lstrip('.')}" if place and not place.startswith("[") else f"{where}{place}"
        raise InputError(escaped(f"{field[:200]}: {sentence[:1].lower()}{sentence[1:160]}")) from None
