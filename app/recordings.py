"""Runs that were measured in one browser window, kept so that any of their steps can be opened in Explore."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path

from app import uploads
from app.run_lines import RunLines
from app.uploads import short
from d2sd import Trace


@dataclass(frozen=True, slots=True)
class Recording:
    """One run: what it is called, and its trace, packed or as a file that was uploaded."""

    label: str
    trace: bytes | Path

    @classmethod
    def of(cls, trace: Trace, label: str = "") -> Recording:
        """A run that was just recorded; named by its prompt unless a label is given."""
        name = label or " ".join(str(trace.header.get("prompt") or "no prompt").split())
        return cls(short(name), zlib.compress("".join(trace.lines()).encode(), 3))

    def run(self) -> RunLines:
        """The run as Explore shows it; ``InputError`` where its file is gone or too large to draw."""
        if isinstance(self.trace, bytes):
            # not splitlines(): texts may hold U+2028 and the like
            return RunLines.packed(zlib.decompress(self.trace).decode().split("\n"))
        return uploads.read(self.trace)


@dataclass(slots=True)
class Recordings:
    """The measured runs of one window, in the order of the drawing."""

    runs: list[Recording] = field(default_factory=list)
