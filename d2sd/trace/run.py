"""A stored run: the compressed lines of its trace, which are parsed or sent to the page on demand.

Gradio serializes, stores and compares the whole value of a component on every change. A value that grows with the run would
make each update slower than the previous one. An update therefore holds only the new lines and their index in the run, and a
page that missed some requests them. Long lines, and blocks of lines of a finished run, are sent compressed: ``~``, then raw
deflate in base64, a tenth of the bytes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from d2sd.trace.events import Event
from d2sd.trace.trace import Trace, parse_trace
from d2sd.trace.viewer_lines import VERDICT, Judge, pack_line, unpack_line
from d2sd.trace.writer import to_line

LONG = 2048  # characters
BLOCK = 1 << 16  # characters


@dataclass(slots=True)
class RecordedRun:
    """Trace lines of one run, growing or finished.

    key: unique id.
    live: the run is in progress, and lines will be added.
    """

    key: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)
    live: bool = field(default=False, compare=False)
    _entries: list[str] = field(default_factory=list)  # a line or a block of lines each, as they travel
    _judge: Judge | None = field(default_factory=Judge, compare=False, repr=False)  # None: no verdicts yet

    @classmethod
    def of(cls, lines: Iterable[str]) -> RecordedRun:
        """Returns a finished run."""
        run = cls()
        run.append(lines)
        return run

    @classmethod
    def packed(cls, lines: Iterable[str]) -> RecordedRun:
        """Returns a finished run in compressed blocks; the verdicts on its steps are computed when it is first shown."""
        return cls(_entries=_packed(lines), _judge=None)

    def holds(self, other: RecordedRun) -> bool:
        """Returns whether this run begins with all lines of another, non-empty run."""
        if not len(self) or not len(other) or self._entries[0] != other._entries[0]:
            return False  # other headers: nearly always
        theirs = other.lines()
        return self.lines()[: len(theirs)] == theirs

    def __len__(self) -> int:
        """Returns the number of entries, not lines."""
        return len(self._entries)

    @property
    def size(self) -> int:
        """Size of its stored lines in characters."""
        return sum(map(len, self._entries))

    def append(self, added: Iterable[str | Event | dict[str, Any]]) -> None:
        """Add trace lines, with or without newlines, or events; empty lines are skipped."""
        judge = self._judged()
        for item in added:
            if isinstance(item, str):
                lines = judge.lines([item])
            else:
                lines = judge.event_lines(item)
            self._entries += [_pack(line.rstrip("\n")) for line in lines if line.strip()]

    def segment(self, start: int = 0, **notes: Any) -> str:
        """Returns the value for the page: a head, then the entries from ``start`` on.

        The head holds the key of the run, the number of the first entry, the most instructive step, and the notes.
        """
        head = {"event": "Segment", "key": self.key, "from": start, "instructive": self._judged().instructive, **notes}
        return "".join([to_line(head), *(line + "\n" for line in self._entries[start:])])

    def note(self, **notes: Any) -> str:
        """Returns a segment without entries."""
        self._judged()  # which changes the number of entries
        return self.segment(len(self), **notes)

    def _judged(self) -> Judge:
        """Returns the judge of the steps so far; of a packed run they are judged at the first call."""
        if self._judge is None:
            judge = Judge()
            self._entries = _packed(judge.lines(self.lines()))
            self._judge = judge
        return self._judge

    @property
    def header(self) -> dict[str, Any]:
        """The header of the run; empty if nothing is recorded."""
        return json.loads(unpack_line(self._entries[0])) if self._entries else {}

    @property
    def ended(self) -> bool:
        """Whether the run's end, or why it broke off, is recorded; the speed of plain decoding may follow it."""
        last = "\n".join(map(unpack_line, self._entries[-2:])).split("\n")[-2:]
        return any(json.loads(line).get("event") in ("Finished", "Failed") for line in last if line)

    def lines(self) -> list[str]:
        """Returns the trace lines, without newlines."""
        every = (line for entry in self._entries for line in unpack_line(entry).split("\n"))
        return [line for line in every if not line.startswith(VERDICT)]

    def trace(self) -> Trace:
        """Returns the parsed run. Raises ``InputError`` if nothing is recorded."""
        return parse_trace("\n".join([*self.lines(), ""]).encode())


def _pack(line: str) -> str:
    return line if len(line) <= LONG else pack_line(line)


def _packed(lines: Iterable[str]) -> list[str]:
    return [part for block in _blocks(lines) for part in _pack(block).split("\n")]


def _blocks(lines: Iterable[str]) -> Iterator[str]:
    """The header by itself, since it is looked at often, then as many lines together as make a block."""
    block: list[str] = []
    size, first = 0, True
    for line in map(str.rstrip, lines):
        if not line:
            continue
        block.append(line)
        size += len(line)
        if first or size > BLOCK:
            yield "\n".join(block)
            block, size, first = [], 0, False
    if block:
        yield "\n".join(block)
