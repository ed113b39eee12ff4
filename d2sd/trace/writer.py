"""Writes the lines of a trace, to a file while its run is in progress."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from d2sd.errors import InputError
from d2sd.trace.events import Event

_encoder = msgspec.json.Encoder()
# The last fields of a step that has nothing there: left out, so that a line of an older trace is written as it was read.
_NOTHING = b',"tempered":[]}', b',"trained":[]}', b',"target_tops":[]}'


def to_line(event: Event | dict[str, Any]) -> str:
    """Returns one JSON line with its newline. Text that UTF-8 cannot encode is replaced."""
    kind = b"" if isinstance(event, dict) else b'{"event":"%s",' % type(event).__name__.encode()
    try:
        body = _encoder.encode(event)
    except UnicodeEncodeError:  # a lone surrogate in some text
        body = _encoder.encode(_encodable(msgspec.to_builtins(event)))
    for nothing in _NOTHING:
        if not body.endswith(nothing):
            break
        body = body[: -len(nothing)] + b"}"
    return (kind + body[1:] if kind else body).decode() + "\n"


class TraceFile:
    """A trace file that is written during its run. Each line is passed to the system before the next one is made, so a
    killed run leaves complete lines. Raises ``InputError`` if the file cannot be written."""

    def __init__(self, path: str | Path):
        self.path, self.lines, self._size = path, 0, 0
        try:
            self._file = open(path, "wb", buffering=0)  # noqa: SIM115 (closed by __exit__)
        except OSError as error:
            raise self._refused(error) from None

    def write(self, event: Event | dict[str, Any]) -> None:
        """Append a line. If the disk is full, the partly written line is removed."""
        raw = memoryview(to_line(event).encode())
        try:
            at = 0
            while at < len(raw):
                at += self._file.write(raw[at:]) or 0
        except OSError as error:
            with suppress(OSError):  # a pipe or a device keeps what it got
                os.ftruncate(self._file.fileno(), self._size)
            raise self._refused(error) from None
        self._size += len(raw)
        self.lines += 1

    def _refused(self, error: OSError) -> InputError:
        kept = f"; its first {self.lines} lines are there" if self.lines else ""
        return InputError(f"cannot write the trace {self.path}: {error.strerror}{kept}")

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {k: _encodable(v) for k, v in value.items()}
    return [_encodable(v) for v in value] if isinstance(value, list | tuple) else value
