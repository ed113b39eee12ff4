"""Reads files, plain or gzip, and writes them atomically: a full disk or Ctrl-C leaves the old file unchanged."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from d2sd.errors import InputError

UNREADABLE = (OSError, zlib.error)  # errors of opening and reading with ``opened``
UTF_16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE  # one of these starts a text in UTF-16
NOT_UTF_8 = "not UTF-8; save the file in that encoding"


@contextmanager
def opened(path: str | Path | int) -> Iterator[IO[bytes]]:
    """Opens a file for reading bytes. A gzip file is unpacked while it is read. A byte order mark of UTF-8 is skipped.

    Opening and reading may raise any of ``UNREADABLE``.

    path: path or descriptor of the file.
    """
    with ExitStack() as stack:
        file = stack.enter_context(open(path, "rb"))
        if file.peek(2)[:2] == b"\x1f\x8b":
            unpacked = stack.enter_context(gzip.open(file))
            file = stack.enter_context(io.BufferedReader(_TruncatedGzip(unpacked), 1 << 16))
        if file.peek(3)[:3] == codecs.BOM_UTF8:
            file.read(3)
        yield file


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


def utf8_lines(lines: Iterable[bytes], name: str | Path) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, text) for each line. A byte order mark at its start is left out.

    name: name of the file, for error messages.

    Raises ``InputError`` with the number of a line that is not UTF-8.
    """
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InputError(f"{name}, line {number}: {NOT_UTF_8}") from None
        yield number, text


def cannot_read(kind: str, path: str | Path, error: Exception) -> InputError:
    return InputError(f"cannot read the {kind} {path}: {getattr(error, 'strerror', None) or error}")


@contextmanager
def writing(path: str | Path, also: type[Exception] = OSError) -> Iterator[None]:
    """Context in which an ``OSError`` becomes an ``InputError`` that names the file or folder. The error for a full disk names none.

    also: another type of errors that become an ``InputError``.
    """
    try:
        yield
    except (OSError, also) as error:
        raise InputError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None


def is_device(path: Path) -> bool:
    """Returns whether a path is a device or a pipe."""
    return str(path).startswith("/dev/") or (path.exists() and not path.is_file() and not path.is_dir())


@contextmanager
def whole_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Context manager that yields a binary file for writing. At its end, the file replaces ``path``; on failure, ``path`` is unchanged.

    Raises ``InputError`` if the file cannot be written.
    """
    path = Path(path)
    device = is_device(path)  # written directly, since it cannot be replaced
    place = path if device else Path(os.path.realpath(path))
    part = place if device else place.with_name(f".{place.name[:100]}.{os.getpid()}.part")
    with writing(path):
        try:
            with part.open("wb") as file:
                yield file
            if not device:
                part.replace(place)
        finally:
            if not device:
                part.unlink(missing_ok=True)


def write_whole(path: str | Path, data: str | bytes) -> None:
    """Writes a file atomically. If that fails, the old file is unchanged and ``InputError`` is raised."""
    with whole_file(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def append_line(path: Path, line: str) -> None:
    """Appends a line to a file. Raises ``InputError`` if that fails."""
    with writing(path), path.open("ab") as file:
        file.write(f"{line}\n".encode("utf-8", "replace"))


def make_folder(folder: Path) -> None:
    """Creates a folder if it does not exist. Raises ``InputError`` if that fails."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
