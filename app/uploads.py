"""Traces that a visitor brings along."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from app.run_lines import RunLines
from d2sd import InputError, Trace
from d2sd.trace.reader import Reader, lines_of
from d2sd.trace.schema import EVENTS, Line, kind_of, read_baseline, read_event
from d2sd.trace.writer import to_line

MAX_MEGABYTES = 96  # unpacked: what a browser still draws comfortably
MAX_MEGABYTES_TOGETHER = 256  # of all files that are measured at once, unpacked
SECONDS_KEPT = 3600  # an uploaded file; after that the run that was read from it is still there
START = b'{"event":"'


def read(path: str | Path) -> RunLines:
    """A trace file, plain or gzip, checked strictly; raises ``InputError``.

    Only what was checked goes on to the page: fields that a trace does not have never reach it.
    """
    reader, _ = _read(path, MAX_MEGABYTES)
    if not len(reader.steps):
        raise InputError("the trace has no steps, so there is nothing to show")
    return RunLines.packed(_for_the_page(reader))


def read_trace(path: Path, room: int) -> tuple[Trace, int]:
    """A trace file as data, and its unpacked size; raises ``InputError``, also where it is larger than ``room`` (bytes)."""
    reader, size = _read(path, MAX_MEGABYTES)
    if size > room:
        raise InputError(
            f"all files together hold more than {MAX_MEGABYTES_TOGETHER} MB, unpacked; choose fewer at once"
        )
    assert reader.header is not None
    return Trace(reader.header, reader.prefill, reader.steps, reader.finished), size


def _read(path: str | Path, megabytes: int) -> tuple[Reader, int]:
    """A reader that has taken the whole file, and its unpacked size in bytes."""
    limit = megabytes * 10**6
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as file:
            raw = file.read(limit + 1)
    except FileNotFoundError:
        raise InputError("this file is not kept any more; upload it again") from None
    except (OSError, EOFError, zlib.error):
        raise InputError("the file cannot be read: it is neither JSON lines nor a whole gzip file") from None
    if len(raw) > limit:
        raise InputError(
            f"the trace is larger than {megabytes} MB, which is more than the page draws; "
            "read it with d2sd.load_trace, or record fewer steps"
        )
    reader = Reader()
    reader.read(lines_of(raw))
    return reader, len(raw)


def _for_the_page(reader: Reader) -> Iterator[str]:
    """The lines of known kinds, and at the end the measured speed of plain decoding, where there is one."""
    yield to_line(reader.header or {})
    baseline = None
    for line in reader.lines[1:]:
        kind = kind_of(line)
        if kind in EVENTS:
            yield _plain(kind, line)
        elif kind == "Baseline":
            baseline = read_baseline(line)
    if baseline is not None:
        yield to_line(baseline)


def _plain(kind: str, line: Line) -> str:
    """A checked line as the writer here puts it. Most are already: to write each of 100,000 again would take longer than
    to read them."""
    text = bytes(line)
    if text.startswith(START) and text.count(b'"event"') == 1:
        return text.decode()
    return to_line(read_event(kind, line))


def short(text: str, most: int = 60) -> str:
    """A name as a label."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= most else text[: most - 1] + "…"
