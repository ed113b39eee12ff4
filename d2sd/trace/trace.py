"""Traces: a run as JSON lines (header, prefill, steps, totals), which are written during the run and can be read back.

The page receives the same lines, so it draws a trace file and a live run in the same way. Readers limit the size of a trace and
check every line against the previous ones. They keep steps as text to save memory.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from d2sd.errors import InputError, require
from d2sd.trace.checks import (
    Line,
    check_order,
    check_prefill,
    check_step,
    is_json,
    kind_of,
    read_baseline,
    read_event,
    read_header,
    read_kind,
)
from d2sd.trace.description import text_html
from d2sd.trace.events import EVENTS, Committed, Event, Finished, PrefillDone, Record, StepDone, to_line
from d2sd.trace.files import UNREADABLE, cannot_read, opened, whole_file, write_whole
from d2sd.trace.metrics import Scalar, Totals, row, totals
from d2sd.trace.text import clip, encodable

MAX_DOMAIN = 60
MAX_BYTES = 512 * 2**20  # size limit of an unpacked trace
MAX_LINE_BYTES = 8 * 2**20
MAX_LINES = 100_000
KEPT_STEPS = 2048
START = b'{"event":"Header"'  # this project writes the field ``event`` first


@dataclass(frozen=True, slots=True, repr=False)
class Trace:
    """A recorded run.

    header: models, settings, versions and hardware, as in the first line of a trace file.
    prefill: the event of prefill; None if the recording ended before it.
    steps: the steps, in order.
    finished: the last event, with totals of the run; None if the recording ended before it.
    """

    header: dict[str, Any]
    prefill: PrefillDone | None
    steps: Sequence[StepDone]
    finished: Finished | None

    def __repr__(self) -> str:
        return f"<{self.header.get('method')}, {self.totals}>"

    def _repr_html_(self) -> str:
        prompt = self.header.get("prompt") or "".join(self.prefill.texts if self.prefill else ())
        return text_html(str(prompt), [*self._committed()], str(self.totals))

    @classmethod
    def of(cls, header: dict[str, Any], events: Iterable[Event]) -> Trace:
        """Returns the trace of a run.

        header: header of the run, as ``Engine.header`` returns it.
        events: events of the run, in the order in which ``Engine.run`` yields them.
        """
        prefill, steps, finished = None, [], None
        for event in events:
            if isinstance(event, StepDone):
                steps.append(event)
            elif isinstance(event, PrefillDone):
                prefill = event
            else:
                finished = event
        return cls(header, prefill, tuple(steps), finished)

    @property
    def prompt(self) -> str:
        """The text of the prompt, or its token ids if the text was not stored; empty if neither is known."""
        ids = self.prefill.prompt_token_ids if self.prefill else ()
        return str(self.header.get("prompt") or ids or "")

    @property
    def domain(self) -> str:
        """The prompt group in the header, cut to 60 characters; "all" if the header names no group."""
        return clip(encodable(str(self.header.get("domain") or "all")), MAX_DOMAIN)

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the information that the imported log of another engine lacks: any of ``tokens``, ``rejected``, ``target``,
        ``confidence``, ``prompt``, ``times``. Empty for a run that was recorded by D²SD."""
        missing = self.header.get("missing")
        return tuple(map(str, missing)) if isinstance(missing, list) else ()

    @property
    def token_ids(self) -> list[int]:
        """Generated token ids, prompt excluded."""
        return [committed.token for committed in self._committed()]

    @property
    def text(self) -> str:
        """The generated text, prompt excluded. If the recording ended early, the text up to its last step."""
        return self.finished.text if self.finished else "".join(committed.text for committed in self._committed())

    def _committed(self) -> Iterator[Committed]:
        if self.prefill:
            yield from self.prefill.committed
        for step in self.steps:
            yield from step.committed

    @property
    def totals(self) -> Totals:
        """Totals of the run, such as ``mean_acceptance_length`` and ``tokens_per_second``."""
        return totals(self.steps, self.prefill)

    def rows(self) -> list[dict[str, Scalar]]:
        """Returns one flat dictionary per step, for ``pandas.DataFrame(trace.rows())`` or ``csv.DictWriter``.

        Unknown values are None.

        step: index in ``steps``. The page and the command line count from 1.
        anchor_position: number of tokens before the step's anchor.
        committed, text: number of committed tokens, bonus token included, and their text.
        drafted: number of tokens of the first draft; 0 without a block draft.
        redrafts: number of re-drafts.
        draft_nodes: number of nodes in the tree of all drafts, including the anchor. With a node budget, only some are verified.
        nodes: number of verified tree nodes, including the anchor.
        accepted: number of accepted drafted tokens.
        predicted_boundary: likeliest number of accepted tokens of the first draft, according to its confidences.
        actual_boundary: number of tokens of the first draft that the target accepted.
        outcome: outcome of the first draft: "repaired", "found", "missed" or "all" (``d2sd.trace.metrics.verdict``).
        confidence_first, confidence_mean: confidence of the first draft's first token, and mean confidence of all its tokens.
        seconds: measured time of all stages of the step.
        seconds_first_draft, seconds_second_draft, seconds_tree, seconds_verify, seconds_commit: measured time of each stage.
        elapsed: time from the end of prefill to the end of the step.
        """
        return [row(step, self.missing) for step in self.steps]

    def events(self) -> Iterator[Event]:
        """Yields the events in the order of the recording."""
        if self.prefill:
            yield self.prefill
        yield from self.steps
        if self.finished:
            yield self.finished

    def records(self) -> Iterator[Record]:
        """Yields the header and the events: the content of every line of a trace file."""
        yield self.header
        yield from self.events()

    def lines(self) -> Iterator[str]:
        """Yields the lines of a trace file, as JSON with newlines."""
        return map(to_line, self.records())

    def save(self, path: str | Path) -> None:
        """Writes the trace to a file.

        path: path of the file. If it ends in ``.gz``, the file is gzipped.

        Raises ``InputError`` if the file cannot be written.
        """
        data = "".join(self.lines()).encode()
        write_whole(path, gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def load_trace(path: str | Path) -> Trace:
    """Returns the trace in a file. All lines are checked on loading. Steps are kept as text and parsed when they are used.

    path: path of the file, plain or gzip.

    Raises ``InputError`` if the file cannot be read or a line is invalid; the error names the line and field.
    """
    reader = Reader()
    for _ in reader.file_records(path):
        pass
    return reader.trace


def parse_trace(raw: bytes) -> Trace:
    """Returns the trace in ``raw``, the content of an unpacked trace file. A truncated last line is dropped. Raises ``InputError``
    if another line is invalid."""
    return Reader().read(lines_of(raw))


def unchecked_trace(lines: Iterable[Line]) -> Trace:
    """Returns the trace in these lines, header first. Only use it for lines that were written by this project or checked before."""
    header, steps, others = None, list[Line](), list[Event]()
    for line in lines:
        kind = kind_of(line)
        if kind == "Header":
            header = read_header(line)
        elif kind == "StepDone":
            steps.append(line)
        elif kind in EVENTS:
            others.append(read_event(line))
    if header is None:
        raise InputError("the trace is empty")
    return replace(Trace.of(header, others), steps=RecordedSteps(steps))


class RecordedSteps(Sequence[StepDone]):
    """The steps of a trace file. They are kept as text, since objects would take several times the memory.

    Indexing parses a step into a ``StepDone``. The most recently used steps are cached.
    """

    def __init__(self, lines: list[Line]):
        self._lines = lines
        self._step = lru_cache(KEPT_STEPS)(lambda index: cast(StepDone, read_event(lines[index])))

    def __repr__(self) -> str:
        return f"<{len(self)} steps>"

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: Any) -> Any:
        indices = range(len(self._lines))[index]
        return self._step(indices) if isinstance(indices, int) else tuple(map(self._step, indices))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordedSteps | tuple):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordedSteps, (list(map(bytes, self._lines)),)


class Reader:
    """Reads the lines of one trace and checks each line against the previous ones.

    token_ids: ids of all tokens committed so far.
    """

    def __init__(self) -> None:
        self.header: dict[str, Any] = {}
        self.prefill: PrefillDone | None = None
        self.finished: Finished | None = None
        self.token_ids: list[int] = []
        self._steps: list[Line] = []
        self._last: StepDone | None = None

    @property
    def trace(self) -> Trace:
        return Trace(self.header, self.prefill, RecordedSteps(self._steps), self.finished)

    def read(self, lines: Iterable[Line]) -> Trace:
        """Reads all lines and returns the trace. Raises ``InputError`` as ``records`` does."""
        for _ in self.records(lines):
            pass
        return self.trace

    def records(self, lines: Iterable[Line]) -> Iterator[Record]:
        """Yields the content of all lines. A truncated last line and lines with an unknown event are dropped.

        lines: the lines of a trace, including their newlines.

        Raises ``InputError``, which names the invalid line.
        """
        size = 0
        for number, line in enumerate(lines, 1):
            size += len(line)
            place = f"trace line {number}"
            require(len(line) <= MAX_LINE_BYTES, f"{place}: longer than {MAX_LINE_BYTES // 2**20} MiB")
            require(size <= MAX_BYTES, f"{place}: the trace is larger than {MAX_BYTES // 2**20} MiB")
            require(number <= MAX_LINES, f"{place}: a trace has at most {MAX_LINES} lines")
            try:
                record = self._record(line)
            except InputError as error:
                if self.header and line[-1:] != b"\n" and not is_json(line):
                    break  # the truncated last line of a killed run
                raise InputError(f"{place}: {error}") from None
            if record is not None:
                yield record
        require(self.header, "the trace is empty")

    def file_records(self, path: str | Path) -> Iterator[Record]:
        """Yields the content of all lines of a trace file, plain or gzip. Raises ``InputError`` as ``records`` does."""
        try:
            with opened(path) as file:
                # line by line, so that the limits stop a small file that unpacks to a huge one
                yield from self.records(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""))
        except UNREADABLE as error:
            raise cannot_read("trace", path, error) from None

    def _record(self, line: Line) -> Record | None:
        """Returns the content of the next line; None if it is empty or has an unknown event. Raises ``InputError`` if it is invalid."""
        if line in (b"\n", b"\r\n"):
            return None
        kind = kind_of(line)
        if not self.header:
            require(kind == "Header", "not the header of a trace")
            self.header = read_header(line)
            return self.header
        require(kind != "Header", "a second header; a trace holds one run")
        if kind not in EVENTS:
            read_kind(line)  # raises unless the line is JSON; the fields of unknown events are not checked
            return read_baseline(line) if kind == "Baseline" else None
        event = read_event(line)
        if isinstance(event, StepDone):
            require(not self.finished, "a step after Finished")
            check_step(event)
            check_order(event, self._last, self.prefill, len(self._steps))
            self._steps.append(line)
            self._last = event
        elif isinstance(event, PrefillDone):
            begun = self.prefill or self._steps or self.finished
            require(not begun, "PrefillDone must come once, before the steps")
            check_prefill(event)
            self.prefill = event
        else:
            require(not self.finished, "a second Finished")
            count = len(self._steps)
            require(event.steps == count, f"steps: it must be {count}, the number of steps in the trace")
            require(
                list(event.token_ids) == self.token_ids,
                "token_ids: they must be the tokens committed by prefill and the steps",
            )
            self.finished = event
            return event
        self.token_ids += [c.token for c in event.committed]
        return event


def lines_of(raw: bytes) -> Iterator[Line]:
    """Yields the lines of a text as memory views. Copying them would take a quarter of the time needed to read a long trace."""
    view, start = memoryview(raw), 0
    while start < len(raw):
        end = raw.find(b"\n", start) + 1 or len(raw)
        yield view[start:end]
        start = end


# Files with several traces, read and written one trace at a time.


def read_traces(path: str | Path) -> Iterator[Trace]:
    """Yields the traces of a file that holds one or more of them.

    path: path of the file, plain or gzip.

    Raises ``InputError`` if the file cannot be read or a run is invalid; the error names the run.
    """
    try:
        with opened(path) as file:
            for number, lines in enumerate(_runs(file), 1):
                try:
                    trace = Reader().read(lines)
                except InputError as error:
                    raise InputError(f"run {number}: {error}" if number > 1 else str(error)) from None
                yield trace
    except UNREADABLE as error:
        raise cannot_read("trace", path, error) from None


def _runs(file: IO[bytes]) -> Iterator[list[bytes]]:
    """Yields, for each run of a file, the list of its lines. A run ends before the next header."""
    run: list[bytes] = []
    while line := file.readline(MAX_LINE_BYTES + 1):
        if run and (line.startswith(START) or (b'"Header"' in line and _is_header(line))):
            yield run
            run = []
        if line.strip() or run:
            run.append(line)
    yield run


def _is_header(line: bytes) -> bool:
    try:
        return kind_of(line) == "Header"
    except InputError:
        return False


def write_traces(path: str | Path, traces: Iterable[Trace]) -> int:
    """Writes traces to one file and returns the number of traces. If the file's name ends in ``.gz``, the file is gzipped.

    An existing file is replaced atomically. If there are no traces, it is left unchanged.
    """
    traces, count = iter(traces), 0
    if (first := next(traces, None)) is None:
        return 0
    with whole_file(path) as file, gzip.open(file, "wb") if str(path).endswith(".gz") else nullcontext(file) as out:
        for trace in chain([first], traces):
            out.writelines(map(str.encode, trace.lines()))
            count += 1
    return count


class TraceFile:
    """A trace file that is written line by line during a run. It is not buffered, so a killed run leaves complete lines.

    Raises ``InputError`` if the file cannot be written.
    """

    def __init__(self, path: str | Path):
        self.path, self.lines, self._size = path, 0, 0
        try:
            self._file = open(path, "wb", buffering=0)  # noqa: SIM115 (closed by __exit__)
        except OSError as error:
            raise self._failure(error) from None

    def write(self, record: Record) -> None:
        """Appends a line. If the line cannot be written completely, for example on a full disk, its written part is removed."""
        raw = memoryview(to_line(record).encode())
        try:
            written = 0
            while written < len(raw):
                written += self._file.write(raw[written:]) or 0
        except OSError as error:
            with suppress(OSError):  # pipes and devices cannot be truncated
                os.ftruncate(self._file.fileno(), self._size)
            raise self._failure(error) from None
        self._size += len(raw)
        self.lines += 1

    def _failure(self, error: OSError) -> InputError:
        written = f"; its first {self.lines} lines were written" if self.lines else ""
        return InputError(f"cannot write the trace {self.path}: {error.strerror}{written}")

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
