"""Measured runs of one browser window, kept so that each of their steps can be opened in Explore."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app import uploads
from app.run_lines import RunLines
from app.uploads import short
from d2sd import InputError, Trace
from d2sd.trace.trace import parse_trace


@dataclass(frozen=True, slots=True)
class Recording:
    """One run.

    label: what it is called.
    trace: packed, or as a file that was uploaded.
    domain: its prompt's group.
    header: what it was made with.
    """

    label: str
    trace: bytes | Path
    domain: str = "all"
    header: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, trace: Trace, label: str = "") -> Recording:
        """Returns a run that was just recorded; named by its prompt unless a label is given."""
        name = label or " ".join(str(trace.header.get("prompt") or "no prompt").split())
        return cls(short(name), zlib.compress("".join(trace.lines()).encode(), 3), trace.domain, trace.header)

    def read(self) -> Trace:
        """Returns the run as data; raises ``InputError`` if its file is gone."""
        if isinstance(self.trace, bytes):
            return parse_trace(zlib.decompress(self.trace))
        return uploads.read_traces(self.trace, uploads.MAX_MEGABYTES * 10**6)[0][0]

    def run(self) -> RunLines:
        """Returns the run as Explore shows it; ``InputError`` if its file is gone or too large to draw."""
        if isinstance(self.trace, bytes):
            # not splitlines(): texts may hold U+2028 and the like
            return RunLines.packed(zlib.decompress(self.trace).decode().split("\n"))
        return uploads.read(self.trace)


@dataclass(slots=True)
class Recordings:
    """The measured runs of one window, in the order of the drawing, and their title."""

    runs: list[Recording] = field(default_factory=list)
    title: str = ""


def read_uploads(paths: Sequence[Path]) -> tuple[list[tuple[Recording, Trace]], list[str]]:
    """Returns the uploaded traces that can be read, and a sentence for each of the others."""
    good, bad = [], []
    room = uploads.MAX_MEGABYTES_TOGETHER * 10**6
    for path in paths:
        try:
            traces, size = uploads.read_traces(path, room)
        except InputError as error:
            bad.append(f"{short(path.name)} was not read: {error}")
        else:
            room -= size
            if len(traces) == 1:
                good.append((Recording(short(path.name), path, traces[0].domain, traces[0].header), traces[0]))
            else:
                named = ((f"{n} of {short(path.name, 40)}", trace) for n, trace in enumerate(traces, 1))
                good += [(Recording.of(trace, label), trace) for label, trace in named]
    return good, bad
