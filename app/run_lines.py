"""The run shown in a window, stored on the server line by line and sent to the page in segments.

Gradio writes out, stores and compares the whole value of a component on every change. A value that grows with the run would
make every update slower than the one before. So an update carries only the new lines, with their place in the run, and a
page that missed some asks for them. Long lines, and blocks of lines of a finished run, travel packed: ``~``, then raw deflate
in base64, a tenth of the bytes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from d2sd.drawing.viewer_lines import VERDICT, Judge, pack_line, unpack_line
from d2sd.trace.trace import Trace, parse_trace
from d2sd.trace.writer import to_line

LONG = 2048
BLOCK = 1 << 16  # characters


def pack(line: str) -> str:
    """Returns a line in transport form; short ones unchanged."""
    return line if len(line) <= LONG else pack_line(line)


@dataclass(slots=True)
class RunLines:
    """Trace lines of one run. ``key``: unique id; ``live``: the run is in progress, and lines will be added.

    An entry is a line or a block of lines, as it travels.
    """

    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    live: bool = False
    _lines: list[str] = field(default_factory=list)
    _judge: Judge = field(default_factory=Judge)

    @classmethod
    def of(cls, lines: Iterable[str]) -> RunLines:
        """Returns a finished run."""
        run = cls()
        run.append(lines)
        return run

    @classmethod
    def packed(cls, lines: Iterable[str]) -> RunLines:
        """The same in compressed blocks, for a run that will not grow."""
        run = cls()
        run._lines += [part for block in _blocks(run._judge.lines(lines)) for part in pack(block).split("\n")]
        return run

    def holds(self, other: RunLines) -> bool:
        """Returns whether the lines of another, non-empty run are the first ones of this."""
        if not len(self) or not len(other) or self._lines[0] != other._lines[0]:
            return False  # other headers: nearly always
        theirs = other.lines()
        return self.lines()[: len(theirs)] == theirs

    def __len__(self) -> int:
        """Returns the number of entries, not lines."""
        return len(self._lines)

    @property
    def size(self) -> int:
        """Size of its stored lines in characters."""
        return sum(map(len, self._lines))

    def append(self, lines: Iterable[str]) -> None:
        """Add trace lines, with or without newlines; empty ones are skipped."""
        self._lines += [pack(line.rstrip("\n")) for line in self._judge.lines(lines) if line.strip()]

    def segment(self, start: int = 0, **notes: Any) -> str:
        """Returns the value for the page: a head, then the entries from ``start`` on.

        The head says whose run this is, the number of the first entry, which step shows the idea best, and the notes.
        """
        head = {"event": "Segment", "key": self.key, "from": start, "instructive": self._judge.instructive, **notes}
        return "".join([to_line(head), *(line + "\n" for line in self._lines[start:])])

    @property
    def header(self) -> dict[str, Any]:
        """The header of the run; empty if nothing is recorded."""
        return json.loads(unpack_line(self._lines[0])) if self._lines else {}

    @property
    def ended(self) -> bool:
        """Whether the run's end is recorded; the speed of plain decoding may follow it."""
        last = "\n".join(map(unpack_line, self._lines[-2:])).split("\n")[-2:]
        return any(json.loads(line).get("event") == "Finished" for line in last if line)

    def lines(self) -> list[str]:
        """Returns the trace lines, without newlines."""
        every = (line for entry in self._lines for line in unpack_line(entry).split("\n"))
        return [line for line in every if not line.startswith(VERDICT)]

    def trace(self) -> Trace:
        """Returns the run as data; raises ``InputError`` if nothing is recorded."""
        return parse_trace("\n".join([*self.lines(), ""]).encode())


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
