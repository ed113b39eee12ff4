"""Traces that a visitor brings along."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from pathlib import Path

from app.run_lines import RunLines
from d2sd import InputError
from d2sd.trace.trace import parse_trace
from d2sd.trace.writer import to_line

MAX_MEGABYTES = 96  # unpacked: what a browser still draws comfortably


def read(path: str | Path) -> RunLines:
    """A trace file, plain or gzip, checked strictly; raises ``InputError``.

    Only what was checked goes on to the page: fields that a trace does not have never reach it.
    """
    raw = _unpacked(Path(path))
    trace = parse_trace(raw)
    if not trace.steps:
        raise InputError("the trace has no steps, so there is nothing to show")
    return RunLines.of([*trace.lines(), *_baseline(raw)])


def _unpacked(path: Path) -> bytes:
    limit = MAX_MEGABYTES * 10**6
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as file:
            raw = file.read(limit + 1)
    except (OSError, EOFError, zlib.error):
        raise InputError("the file cannot be read: it is neither JSON lines nor a whole gzip file") from None
    if len(raw) > limit:
        raise InputError(
            f"the trace is larger than {MAX_MEGABYTES} MB, which is more than the page draws; "
            "read it with d2sd.load_trace, or record fewer steps"
        )
    return raw


def _baseline(raw: bytes) -> list[str]:
    """The line with the measured speed of plain decoding, which the page adds to its own runs."""
    for line in raw.rstrip().rsplit(b"\n", 2)[-2:]:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "Baseline":
            speed = event.get("tokens_per_second")
            if isinstance(speed, int | float) and math.isfinite(speed) and speed > 0:
                return [to_line({"event": "Baseline", "tokens_per_second": float(speed)})]
    return []
