"""The records of a log: JSON lines, or one JSON document (a list of records, or a single one), plain or gzip, with limits."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import msgspec
import orjson

from d2sd.errors import InputError
from d2sd.trace.reader import MAX_BYTES, MAX_LINE_BYTES
from d2sd.trace.text import escaped

T = TypeVar("T")
MAX_DOCUMENT = 96 * 10**6
Row = tuple[str, dict[str, Any]]  # where it stands, for sentences, and what it holds


def read_rows(path: str | Path, most: int = MAX_BYTES) -> Iterator[Row]:
    """Record by record; raises ``InputError``, also where the file holds more than ``most`` bytes, unpacked."""
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as file:
            yield from _rows(cast(IO[bytes], file), most)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot read the log {path}: {getattr(error, 'strerror', None) or error}") from None


def _rows(file: IO[bytes], most: int) -> Iterator[Row]:
    size, number, found = 0, 0, 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        size, number = size + len(line), number + 1
        if not line.strip():
            continue
        if size > most:
            raise InputError(f"line {number}: the log is larger than {most // 10**6} MB")
        if len(line) > MAX_LINE_BYTES:
            raise InputError(f"line {number}: longer than {MAX_LINE_BYTES // 2**20} MiB")
        try:
            data = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if not found and line.lstrip()[:1] in (b"{", b"["):
                yield from _document(line + file.read(MAX_DOCUMENT + 1), most)
                return
            raise InputError(f"line {number}: not JSON ({error})") from None
        found += 1
        if isinstance(data, list) and found == 1:
            yield from _entries(data)
            return
        yield f"line {number}", _object(data, f"line {number}")


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
    """Data as a class with checked fields; ``InputError`` names the field at fault, ``where`` being the place of ``data``."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        sentence, _, place = str(error).replace("`", "").partition(" - at $")
        field = f"{where}.{place.lstrip('.')}" if place and not place.startswith("[") else f"{where}{place}"
        raise InputError(escaped(f"{field[:200]}: {sentence[:1].lower()}{sentence[1:160]}")) from None
