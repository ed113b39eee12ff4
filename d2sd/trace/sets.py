"""Many traces in one file: read and written one at a time, never all at once."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from d2sd.errors import InputError
from d2sd.trace.files import UNREADABLE, cannot_read, opened
from d2sd.trace.reader import MAX_LINE_BYTES, Reader
from d2sd.trace.schema import kind_of
from d2sd.trace.trace import Trace, trace_of

START = b'{"event":"Header"'  # as every writer here puts it


def read_traces(path: str | Path) -> Iterator[Trace]:
    """Yields the traces of a file with one or more, plain or gzip. Raises ``InputError``, which names the run."""
    try:
        with opened(path) as file:
            for number, lines in enumerate(_runs(file), 1):
                reader = Reader()
                try:
                    reader.read(lines)
                except InputError as error:
                    raise InputError(f"run {number}: {error}" if number > 1 else str(error)) from None
                yield trace_of(reader)
    except UNREADABLE as error:
        raise cannot_read("trace", path, error) from None


def _runs(file: IO[bytes]) -> Iterator[list[bytes]]:
    """The lines of one run after another, up to the next header."""
    run: list[bytes] = []
    while line := file.readline(MAX_LINE_BYTES + 1):
        if run and (line.startswith(START) or (b'"Header"' in line and _is_header(line))):
            yield run
            run = []
        if line.strip() or run:
            run.append(line)
    yield run


def _is_header(line: bytes) -> bool:
    try:
        return kind_of(line) == "Header"
    except InputError:
        return False


def write_traces(path: str | Path, traces: Iterable[Trace]) -> int:
    """Write traces one after another, gzipped if the name ends in ``.gz``, and returns their number. The file is written
    atomically."""
    place = Path(path)
    part, count = place.with_name(f".{place.name[:100]}.{os.getpid()}.part"), 0
    try:
        try:
            with (
                gzip.open(part, "wt", encoding="utf-8")
                if place.suffix == ".gz"
                else open(part, "w", encoding="utf-8") as file
            ):
                for trace in traces:
                    file.writelines(trace.lines())
                    count += 1
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    return count
