"""A stored run: the compressed lines of its trace, which are parsed or sent to the page on demand.

Gradio serializes, stores and compares the whole value of a component on every change. A value that grows with the run would
make each update slower than the previous one. An update therefore holds only the new lines and the index of the first of them;
the page requests lines that it missed. Long lines, and blocks of lines of a finished run, are sent compressed (``pack_line``).

Two kinds of lines are only for the page, and not part of a trace: before each step, a line with its
``d2sd.trace.metrics.StepOutcome``; and at the end, if the run was replayed, a line with the outcomes of other settings
(``d2sd.replay.grid``).
"""

from __future__ import annotations

import base64
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from d2sd.trace.events import Baseline, Record, StepDone, to_line
from d2sd.trace.metrics import StepOutcome, instructiveness
from d2sd.trace.trace import Reader, Trace, lines_of, unchecked_trace

LONG = 2048  # characters; longer lines are compressed
BLOCK = 1 << 16  # characters of a compressed block
PACKED = "~"
OUTCOME = '{"event":"Outcome"'
MessageKind = Literal["select", "file", "redraft", "typed", "replays"]
OF_PAGE = (OUTCOME, '{"event":"Replays"')  # beginnings of the lines that are not part of the trace


@dataclass(frozen=True, slots=True)
class Message:
    """A message to the page, sent together with new lines of the run.

    kind: what the page is to do. "select": open a step; "file": save a file; "redraft", "typed", "replays": show the answer to a
        question.
    fields: the content: for "select", ``step`` and ``node``; for "file", ``name``, ``type`` and ``text``; for answers, the
        ``number`` of the question and the answer.
    """

    kind: MessageKind
    fields: Mapping[str, Any]

    @classmethod
    def select(cls, selection: Mapping[str, Any] | None) -> Message | None:
        """Returns the message that opens the ``step`` and ``node`` of a selection; None if ``selection`` is None."""
        return None if selection is None else cls("select", selection)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a run comes from.

    recorded: whether the run was complete when the page received it, so that the page need not follow its progress.
    own: whether the run was made in this browser window.
    opened: name of the file from which the run was opened; empty if it was not opened from a file.
    """

    recorded: bool = False
    own: bool = False
    opened: str = ""


@dataclass(slots=True, eq=False)
class RecordedRun:
    """The trace lines of one run, in progress or finished. They are not checked, since this project wrote or checked them before.

    key: unique id of the run.
    live: whether the run is in progress, so that lines will be added.
    header: the header of the run; empty until it is recorded.
    baseline: the speed of plain decoding, if it was measured.
    ended: whether the end or the failure of the run is recorded; the speed of plain decoding may still follow.
    steps: number of steps so far.
    instructive: number of the most instructive step so far (``d2sd.trace.metrics.instructiveness``); 0 if there is none.
    """

    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    live: bool = False
    header: dict[str, Any] = field(default_factory=dict)
    baseline: Baseline | None = None
    ended: bool = False
    steps: int = 0
    instructive: int = 0
    # lines or compressed blocks of lines, as they are sent to the page
    _entries: list[str] = field(default_factory=list)
    _best: tuple[int, ...] = ()  # sort key of the most instructive step

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordedRun) and self._entries == other._entries

    @classmethod
    def of(cls, records: Iterable[Record]) -> RecordedRun:
        """Returns a finished run, stored in compressed blocks. records: content of all trace lines, header first."""
        run = cls()
        run._entries = list(_blocks(line for record in records for line in run._lines(record)))
        return run

    @classmethod
    def read(cls, raw: bytes) -> RecordedRun:
        """Returns the finished run in these trace lines. Raises ``InputError`` if a line is invalid."""
        return cls.of(Reader().records(lines_of(raw)))

    def holds(self, other: RecordedRun) -> bool:
        """Returns whether ``other`` is not empty and this run begins with all its lines."""
        if not len(self) or not len(other) or self._entries[0] != other._entries[0]:
            return False  # in most cases, already the headers differ
        theirs = other.lines()
        return self.lines()[: len(theirs)] == theirs

    def __len__(self) -> int:
        """Returns the number of entries; an entry is a line or a block of lines."""
        return len(self._entries)

    @property
    def size(self) -> int:
        return sum(map(len, self._entries))

    def append(self, added: Iterable[Record]) -> None:
        self._entries += [pack_line(line) for record in added for line in self._lines(record)]

    def segment(
        self, start: int = 0, message: Message | None = None, origin: Origin | None = None, key: str = ""
    ) -> str:
        """Returns an update of the page as text: a line of JSON (the head), then the entries from index ``start`` on.

        The head holds ``key``, ``start``, the number of steps, the number of the most instructive step, the message and the origin.

        key: identifies the run on the page; if empty, the key of this object is used.
        """
        head: dict[str, Any] = {
            "event": "Segment",
            "key": key or self.key,
            "from": start,
            "steps": self.steps,
            "instructive": self.instructive,
        }
        if message is not None:
            head["message"] = {"kind": message.kind, **message.fields}
        if origin is not None:
            head |= asdict(origin)
        return "".join([to_line(head), *(entry + "\n" for entry in self._entries[start:])])

    def message(self, message: Message | None) -> str:
        """Returns an update of the page that has a message, but no entries."""
        return self.segment(len(self), message)

    def lines(self, outcomes: bool = False) -> list[str]:
        """Returns the trace lines, without newlines. outcomes: whether to include lines that are not part of the trace."""
        every = (line for entry in self._entries for line in unpack_line(entry).split("\n"))
        return [line for line in every if outcomes or not line.startswith(OF_PAGE)]

    def trace(self) -> Trace:
        """Returns the trace; its steps are parsed on access. Raises ``InputError`` if nothing is recorded."""
        return unchecked_trace(line.encode() for line in self.lines())

    def _lines(self, record: Record) -> Iterator[str]:
        """Yields the line of a record. For a step, first yields the line of its ``StepOutcome``."""
        if isinstance(record, StepDone):
            if (worth := instructiveness(record)) > self._best:
                self._best, self.instructive = worth, self.steps
            self.steps += 1
            yield to_line(StepOutcome.of(record, self.header)).rstrip("\n")
        elif isinstance(record, Baseline):
            self.baseline = record
        kind = record.get("event") if isinstance(record, dict) else type(record).__name__
        if kind == "Header":
            self.header = cast(dict[str, Any], record)
        self.ended = self.ended or kind in ("Finished", "Failed")
        yield to_line(record).rstrip("\n")


def pack_line(line: str) -> str:
    """Returns the compressed form of a long line: ``~`` and the base64 of its raw deflate stream. It is about ten times shorter.
    Other lines are returned unchanged.
    """
    if len(line) <= LONG:
        return line
    deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = deflate.compress(line.encode("utf-8", "replace")) + deflate.flush()
    return f"{PACKED}{base64.b64encode(packed).decode()}"


def unpack_line(line: str) -> str:
    """Returns the line that ``pack_line`` compressed; a line that is not compressed is returned unchanged."""
    return zlib.decompress(base64.b64decode(line[1:]), -zlib.MAX_WBITS).decode() if line.startswith(PACKED) else line


def _blocks(lines: Iterable[str]) -> Iterator[str]:
    """Yields entries: the header alone, since ``RecordedRun.holds`` compares it, then blocks of the other lines."""
    block, size = list[str](), BLOCK  # full from the beginning, so that the header is yielded alone
    for line in lines:
        block.append(line)
        size += len(line)
        if size > BLOCK:
            yield from pack_line("\n".join(block)).split("\n")
            block, size = [], 0
    if block:
        yield from pack_line("\n".join(block)).split("\n")
