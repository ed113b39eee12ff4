"""Reads files, plain or gzip, and writes them atomically: a full disk or Ctrl-C leaves the old file unchanged."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from d2sd.errors import InputError

UNREADABLE = (OSError, zlib.error)  # errors of opening and reading with ``opened``


@contextmanager
def opened(path: str | Path | int) -> Iterator[IO[bytes]]:
    """Opens a file for reading bytes. A gzip file is unpacked while it is read. Opening and reading may raise any of ``UNREADABLE``.

    path: path or descriptor of the file.
    """
    with open(path, "rb") as file:
        if file.peek(2)[:2] != b"\x1f\x8b":
            yield file
            return
        with gzip.open(file) as unpacked, io.BufferedReader(_TruncatedGzip(unpacked), 1 << 16) as reader:
            yield cast(IO[bytes], reader)


class _TruncatedGzip(io.RawIOBase):
    """A reader of the unpacked bytes of a gzip file. A truncated file, for example of a killed run, ends without an error."""

    def __init__(self, unpacked: gzip.GzipFile):
        self._unpacked = unpacked

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._unpacked.read1(len(buffer))
        except EOFError:
            return 0
        buffer[: len(data)] = data
        return len(data)


def utf8_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, text) for each line of a file. Raises ``InputError`` with the number of a line that is not UTF-8."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                text = line.decode()
            except UnicodeDecodeError:
                raise InputError(f"{path}, line {number}: not UTF-8; save the file in that encoding") from None
            yield number, text


def cannot_read(kind: str, path: str | Path, error: Exception) -> InputError:
    return InputError(f"cannot read the {kind} {path}: {getattr(error, 'strerror', None) or error}")


@contextmanager
def whole_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Context manager that yields a binary file for writing. At its end, the file replaces ``path``; on failure, ``path`` is unchanged.

    Raises ``InputError`` if the file cannot be written.
    """
    device = str(path).startswith("/dev/")  # devices and pipes are written directly, since they cannot be replaced
    place = Path(path) if device else Path(os.path.realpath(path))
    device = device or (place.exists() and not place.is_file())
    part = place if device else place.with_name(f".{place.name[:100]}.{os.getpid()}.part")
    try:
        try:
            with part.open("wb") as file:
                yield file
            if not device:
                part.replace(place)
        finally:
            if not device:
                part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def write_whole(path: str | Path, data: str | bytes) -> None:
    """Writes a file atomically. If that fails, the old file is unchanged and ``InputError`` is raised."""
    with whole_file(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def make_folder(folder: Path) -> None:
    """Creates a folder if it does not exist. Raises ``InputError`` if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write into the folder {folder}: {error.strerror}") from None
