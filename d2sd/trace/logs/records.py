"""The records of a log: JSON lines or one JSON document, plain or gzip, with limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import orjson

from d2sd.errors import InputError
from d2sd.trace.files import UNREADABLE, cannot_read, opened
from d2sd.trace.reader import MAX_BYTES, MAX_LINE_BYTES
from d2sd.trace.text import escaped

T = TypeVar("T")
MAX_DOCUMENT = 96 * 10**6
Row = tuple[str, dict[str, Any]]  # where it stands, for sentences, and what it holds


Bad = Callable[[str], None]  # takes the sentence about a record that is skipped


def numbered(path: str | Path, most: int = MAX_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yields the nonempty lines of a log, plain or gzip, with their numbers. Raises ``InputError`` if it is too large."""
    try:
        with opened(path) as file:
            size, number = 0, 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                size, number = size + len(line), number + 1
                if size > most:
                    raise InputError(f"line {number}: the log is larger than {most // 10**6} MB")
                if len(line) > MAX_LINE_BYTES:
                    raise InputError(f"line {number}: longer than {MAX_LINE_BYTES // 2**20} MiB")
                if line.strip():
                    yield number, line
    except UNREADABLE as error:
        raise cannot_read("log", path, error) from None


def read_rows(lines: Iterator[tuple[int, bytes]], most: int = MAX_BYTES, bad: Bad | None = None) -> Iterator[Row]:
    """Yields the records in the lines from ``numbered``. Raises ``InputError`` for one that is not a JSON object.

    bad: called with such an error instead; the record is then skipped.
    """
    found = 0
    for number, line in lines:
        try:
            data = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if not found and line.lstrip()[:1] in (b"{", b"["):
                yield from _document(_joined(line, lines), most)
                return
            _refuse(f"line {number}: not JSON ({error})", bad)
            continue
        found += 1
        if isinstance(data, list) and found == 1:
            yield from _entries(data)
            return
        if not isinstance(data, dict):
            _refuse(f"line {number}: not a JSON object", bad)
            continue
        yield f"line {number}", data


def _joined(line: bytes, lines: Iterator[tuple[int, bytes]]) -> bytes:
    """The line with all that follow, as far as a document may go."""
    whole = bytearray(line)
    for _, rest in lines:
        whole += rest
        if len(whole) > MAX_DOCUMENT:
            break
    return bytes(whole)


def _refuse(sentence: str, bad: Bad | None) -> None:
    if bad is None:
        raise InputError(sentence)
    bad(sentence)


def _document(raw: bytes, most: int) -> Iterator[Row]:
    if len(raw) > min(most, MAX_DOCUMENT):
        raise InputError(f"a log of more than {min(most, MAX_DOCUMENT) // 10**6} MB must be JSON lines")
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InputError(f"line 1: neither JSON lines nor one JSON document ({error})") from None
    yield from _entries(data if isinstance(data, list) else [data])


def _entries(entries: list[Any]) -> Iterator[Row]:
    for number, entry in enumerate(entries, 1):
        yield f"entry {number}", _object(entry, f"entry {number}")


def _object(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InputError(f"{where}: not a JSON object")
    return data


def convert(data: Any, kind: type[T], where: str) -> T:
    """Returns the data as an instance of a class with checked fields. Raises ``InputError``, which names the field and
    ``where`` the data is."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        sentence, _, place = str(error).replace("`", "").partition(" - at $")
        field = f"{where}.{place.lstrip('.')}" if place and not place.startswith("[") else f"{where}{place}"
        raise InputError(escaped(f"{field[:200]}: {sentence[:1].lower()}{sentence[1:160]}")) from None
