"""Reads and checks the lines of a trace, with limits. Steps are kept as text to save memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast, overload

from d2sd.errors import InputError
from d2sd.trace.checks import check_order, check_prefill, check_step
from d2sd.trace.events import Finished, PrefillDone, StepDone
from d2sd.trace.files import UNREADABLE, cannot_read, opened
from d2sd.trace.schema import Line, check_event, check_other, is_json, kind_of, read_event, read_header

MAX_BYTES = 512 * 2**20  # unpacked
MAX_LINE_BYTES = 8 * 2**20
MAX_LINES = 100_000
KEPT_STEPS = 2048


class RecordedSteps(Sequence[StepDone]):
    """The steps of a trace file, checked on reading and kept as text, since objects would take several times the memory.

    Indexing parses a step into a ``StepDone``. The most recent ones are cached.
    """

    def __init__(self, lines: list[Line]):
        self._lines = lines
        self._step = lru_cache(KEPT_STEPS)(lambda index: cast(StepDone, read_event("StepDone", lines[index])))

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> StepDone: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[StepDone, ...]: ...
    def __getitem__(self, index: int | slice) -> StepDone | tuple[StepDone, ...]:
        numbers = range(len(self._lines))[index]
        return self._step(numbers) if isinstance(numbers, int) else tuple(map(self._step, numbers))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordedSteps | tuple):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordedSteps, (list(map(bytes, self._lines)),)

    def __repr__(self) -> str:
        return f"<{len(self)} recorded steps>"


class Reader:
    """Reads the lines of a trace one by one and checks each against the previous ones.

    lines: all lines read, including those with an unknown event.
    token_ids: all committed tokens.
    """

    def __init__(self) -> None:
        self.header: dict[str, Any] | None = None
        self.prefill: PrefillDone | None = None
        self.finished: Finished | None = None
        self.lines: list[Line] = []
        self._steps: list[Line] = []
        self._last: Any = None
        self.token_ids: list[int] = []

    @property
    def steps(self) -> RecordedSteps:
        """The steps read so far."""
        return RecordedSteps(self._steps)

    def read(self, lines: Iterable[Line]) -> None:
        """Read all lines, which include newlines. A truncated last line is dropped.

        Raises ``InputError`` that names the line.
        """
        size = 0
        for number, line in enumerate(lines, 1):
            size += len(line)
            if len(line) > MAX_LINE_BYTES:
                raise InputError(f"trace line {number}: longer than {MAX_LINE_BYTES // 2**20} MiB")
            if size > MAX_BYTES:
                raise InputError(f"trace line {number}: the trace is larger than {MAX_BYTES // 2**20} MiB")
            if number > MAX_LINES:
                raise InputError(f"trace line {number}: a trace has at most {MAX_LINES} lines")
            try:
                self.take(line)
            except InputError as error:
                if self.header is not None and line[-1:] != b"\n" and not is_json(line):
                    break  # cut off by a kill
                raise InputError(f"trace line {number}: {error}") from None
        if self.header is None:
            raise InputError("the trace is empty")

    def take(self, line: Line) -> None:
        """Read one line. Empty lines and those with an unknown event are skipped. Raises ``InputError``."""
        if line in (b"\n", b"\r\n"):
            return
        kind = kind_of(line)
        if self.header is None:
            if kind != "Header":
                raise InputError("not the header of a trace")
            self.header = read_header(line)
        elif kind == "StepDone":
            self._take_step(line)
        elif kind == "PrefillDone":
            self._take_prefill(line)
        elif kind == "Finished":
            self._take_finished(line)
        elif kind == "Header":
            raise InputError("a second header; a trace holds one run")
        else:
            check_other(line)
        self.lines.append(line)

    def _take_step(self, line: Line) -> None:
        if self.finished:
            raise InputError("a step after Finished")
        step = check_event("StepDone", line)
        check_step(step)
        check_order(step, self._last, self.prefill, len(self._steps))
        self.token_ids += [c.token for c in step.committed]
        self._steps.append(line)
        self._last = step

    def _take_prefill(self, line: Line) -> None:
        if self.prefill or self._steps or self.finished:
            raise InputError("PrefillDone comes once, before the steps")
        checked = check_event("PrefillDone", line)
        check_prefill(checked)
        self.token_ids += [c.token for c in checked.committed]
        self.prefill = read_event("PrefillDone", line)

    def _take_finished(self, line: Line) -> None:
        if self.finished:
            raise InputError("a second Finished")
        checked = check_event("Finished", line)
        if checked.steps != len(self._steps):
            raise InputError(f"steps: the trace holds {len(self._steps)}")
        if checked.token_ids != self.token_ids:
            raise InputError("token_ids: they must be the tokens that prefill and the steps committed")
        self.finished = read_event("Finished", line)


def lines_of(raw: bytes) -> Iterator[Line]:
    """Yields the lines of a text as memory views. Copying them would take a quarter of the time to read a long trace."""
    view, at = memoryview(raw), 0
    while at < len(raw):
        end = raw.find(b"\n", at) + 1 or len(raw)
        yield view[at:end]
        at = end


def read_file(path: str | Path) -> Reader:
    """Returns a reader of a whole trace file, plain or gzip. Raises ``InputError``."""
    reader = Reader()
    try:
        with opened(path) as file:
            # line by line, so that a small file cannot unpack to more than its lines are worth
            reader.read(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""))
    except UNREADABLE as error:
        raise cannot_read("trace", path, error) from None
    return reader
