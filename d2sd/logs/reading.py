"""Reads a log: recognises its format and its engine, and yields its requests one by one, up to size limits.

A log is JSON lines, a JSON document, a stream of server-sent events, or printed text. It may be compressed with gzip.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from itertools import chain, filterfalse
from pathlib import Path
from typing import Any

import orjson

from d2sd.errors import InputError, require
from d2sd.logs.figures import Figures
from d2sd.logs.forms import form_of
from d2sd.logs.printed import FENCE, MAX_LINE, SAMPLE, read_printed
from d2sd.logs.replies import STREAM_FIELDS, Fields, is_dump, read_dump, read_stream, reader_of, record_in
from d2sd.logs.steps import Texts
from d2sd.trace.files import UNREADABLE, UTF_16, cannot_read, opened
from d2sd.trace.text import escaped
from d2sd.trace.trace import MAX_BYTES, MAX_LINE_BYTES, Trace, read_traces

MAX_DOCUMENT = 96 * 10**6
HEAD, MAX_HEAD = 50, 2**20  # numbers of lines and bytes at the start of a log by which its format is recognised
DOCUMENT = re.compile(rb"\s*(?:\{\s*(?:[\"}]|$)|\[\s*(?:[\[{\"\]]|$))")  # first line of a multi-line JSON document
NOTHING = (
    "not valid JSON, and no figures of speculative decoding were recognised, or they contradict each other; supported are logs, benchmarks, "
    "/metrics pages and JSON replies of vLLM, SGLang and llama.cpp, and benchmarks of TensorRT-LLM"
)
Lines = Iterator[tuple[int, bytes]]  # numbers and contents of lines
Bad = Callable[[str], None]  # called with the error message of each skipped record


def import_log(
    path: str | Path, texts: Texts | None = None, most: int = MAX_BYTES, bad: Bad | None = None
) -> Iterator[Trace | Figures]:
    """Yields the requests of a log, or its rows of figures, one at a time. Raises ``InputError``, which names the line and field.

    A record of a log is a reply, or an object with the field ``response`` (the reply) and optionally ``prompt`` and ``domain``.

    path: path of the log, or ``-`` for standard input.
    texts: gives the texts of token ids; None: the ids themselves are used as texts.
    most: maximum size of the unpacked file in bytes.
    bad: called with the error of an invalid record, which is then skipped. None: the error is raised.
    """
    every = numbered(path, most)
    begun, size = [], 0
    for line in every:
        begun.append(line)
        size += len(line[1])
        if len(begun) == HEAD or size > MAX_HEAD:
            break
    every = chain(begun, every)
    lines, head = filterfalse(_is_fence, every), [*filterfalse(_is_fence, begun)]
    require(head, "the log is empty")
    first = head[0][1]
    data = parsed(first)
    records: Iterator[tuple[str, Any]] | None = None
    if first.lstrip().startswith(STREAM_FIELDS):
        records = read_stream(lines)
    elif isinstance(data, list) or (data is None and DOCUMENT.match(first)):
        whole = _document(lines, min(most, MAX_DOCUMENT))
        data = parsed(whole)
        if isinstance(data, dict) and _is_known(data):
            data = [data]
        if isinstance(data, list):
            records = ((f"entry {number}", entry) for number, entry in enumerate(data, 1))
        every = enumerate(whole.splitlines())  # read as text if it is invalid JSON, such as a shortened reply
    elif not _is_printed(head):
        records = ((f"line {number}", line) for number, line in lines)
    if records is not None:
        yield from _requests(records, texts or Texts(), bad)
        return
    row = None
    for row in read_printed(line.decode("utf-8", "replace") for _, line in every):
        yield row
    if row is None:
        raise InputError(_unknown("line 1", data) if isinstance(data, dict) else NOTHING)


def _is_fence(line: tuple[int, bytes]) -> bool:
    return line[1].lstrip().startswith(FENCE.encode())


def _document(lines: Lines, most: int) -> bytes:
    whole = bytearray()
    for _, line in lines:
        whole += line
        if len(whole) > most:
            raise InputError(f"a log of more than {most // 10**6} MB must be JSON lines")
    return bytes(whole)


def _is_printed(head: list[tuple[int, bytes]]) -> bool:
    """Returns whether a log is printed text, not JSON. This is decided by the first line of ``head`` that is a known record or has
    figures.
    """
    for _, line in head:
        record, text = parsed(line), line[:MAX_LINE].decode("utf-8", "replace")
        if isinstance(record, dict) and _is_known(record):
            return False
        if SAMPLE.match(text) or form_of(text):
            return True
    first = parsed(head[0][1])
    return not isinstance(first, dict) or not {"error", "event"} & first.keys()


def _is_known(record: Fields) -> bool:
    return is_dump(record) or "response" in record or reader_of(record) is not None


def _requests(records: Iterator[tuple[str, Any]], texts: Texts, bad: Bad | None) -> Iterator[Trace | Figures]:
    """Yields the requests in ``records``. Each record is a place in the log and a JSON object, as text or already parsed."""
    for where, given in records:
        try:
            record = record_in(given, where)
            if is_dump(record):
                rest = ((place, record_in(other, place)) for place, other in records)
                yield from read_dump(chain([(where, record)], rest), texts)
                return
            inner = record.get("response")
            stated = {name: record[name] for name in ("prompt", "domain") if isinstance(record.get(name), str)}
            reply = {**inner, **stated} if isinstance(inner, dict) else record
            if (read := reader_of(reply)) is None:
                raise InputError(_unknown(where, record))
            result = read(reply, where).result(texts)
        except InputError as error:
            if bad is None:
                raise
            bad(str(error))
        else:
            yield result


def _unknown(where: str, record: Fields) -> str:
    if "event" in record:
        return f"{where}: this is a line of a trace; open the file as a trace"
    if "error" in record:
        return f"{where}: the server answered with an error; --skip-bad skips such records"
    names = escaped(", ".join(list(record)[:6])[:120])
    return f"{where}: unknown log format (fields: {names or 'none'}); docs/import.md lists the replies that have figures of drafts"


def is_log(path: str | Path) -> bool:
    """Returns whether a file is a log and not a trace; only a trace has an ``event`` in its first line. Raises ``InputError`` if
    the file cannot be read.
    """
    first = next(numbered(path), (0, b""))[1].lstrip()
    return bool(first) and not (first.startswith(b"{") and b'"event"' in first)


def read_runs(path: str | Path) -> Iterator[Trace]:
    """Yields the runs of a trace, or the requests of a log whose steps are known. Raises ``InputError`` if there are none."""
    if not is_log(path):
        yield from read_traces(path)
        return
    row, runs = None, 0
    for run in import_log(path):
        if isinstance(run, Figures):
            row = row or run
        else:
            runs += 1
            yield run
    if not runs and row is not None:
        raise InputError(
            f"this log holds only totals, no steps ({row}); {row.unknown}. `d2sd trace import FILE` prints all totals, and "
            "`d2sd doctor --log FILE` explains them"
        )


# Lines of a file.


def numbered(path: str | Path, most: int = MAX_BYTES) -> Lines:
    """Yields the number and content of each nonempty line of a log, which may be gzipped, and in UTF-8 or UTF-16.

    path: path of the log, or ``-`` for standard input. A log on standard input may have no end, so Ctrl-C ends it without an error.

    Raises ``InputError`` if the log cannot be read, or if the log or a line is too large.
    """
    standard = str(path) == "-"
    try:
        with opened(os.dup(sys.stdin.fileno()) if standard else path) as file:
            size, number, read = 0, 0, _line_reader(file)
            while line := read():
                size, number = size + len(line), number + 1
                if size > most:
                    raise InputError(f"line {number}: the log is larger than {most // 10**6} MB")
                if len(line) > MAX_LINE_BYTES:
                    raise InputError(f"line {number}: longer than {MAX_LINE_BYTES // 2**20} MiB")
                if line.strip():
                    yield number, line
    except KeyboardInterrupt:
        if not standard:
            raise
    except UNREADABLE as error:
        raise cannot_read("log", path, error) from None


def _line_reader(file: Any) -> Callable[[], bytes]:
    """Returns a function that reads the next line. UTF-16, which PowerShell writes, is converted to UTF-8."""
    if file.peek(2)[:2] in UTF_16:
        text = TextIOWrapper(file, "utf-16", "replace", newline="\n")
        return lambda: text.readline(MAX_LINE_BYTES + 1).encode("utf-8", "replace")
    return lambda: file.readline(MAX_LINE_BYTES + 1)


def parsed(line: bytes) -> Any:
    """Returns the content of a line of JSON; None if the line is not JSON."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
