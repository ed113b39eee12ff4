"""Recognises which engine a log comes from, and reads its requests one by one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from d2sd.errors import InputError
from d2sd.logs.figures import Figures
from d2sd.logs.forms import begins
from d2sd.logs.printed import MAX_LINE, SAMPLE, read_printed
from d2sd.logs.records import Bad, NotJSON, Record, is_stream, numbered, parsed, read_records, read_stream
from d2sd.logs.replies import READERS, is_dump, read_dump
from d2sd.logs.steps import Request, Texts
from d2sd.trace.text import escaped
from d2sd.trace.trace import MAX_BYTES, Trace, read_traces

HEAD, MAX_HEAD = 50, 2**20  # numbers of lines and bytes at the start of a log by which its format is recognised
FENCE = b"```"  # Markdown fence around a log that was copied from a thread
DOCUMENT = re.compile(rb"\s*(?:\{\s*(?:[\"}]|$)|\[\s*(?:[\[{\"\]]|$))")  # first line of a multi-line JSON document
NOTHING = (
    "no figures of speculative decoding were recognised; supported are “SpecDecoding metrics: …” of vLLM, “Decode batch … accept len: …” of SGLang, “draft acceptance = …” of llama.cpp, “[AL] AVERAGE” of "
    "TensorRT-LLM, their benchmarks, /metrics pages and JSON replies"
)


def import_log(
    path: str | Path, texts: Texts | None = None, most: int = MAX_BYTES, bad: Bad | None = None
) -> Iterator[Trace | Figures]:
    """Yields the requests of a log, or its rows of figures, one at a time. Raises ``InputError``, which names the line and field.

    A record is either a reply, or an object with the fields ``response`` (the reply) and, optionally, ``prompt`` and ``domain``.

    most: maximum size of the unpacked file in bytes.
    bad: called with the error of an invalid record, which is then skipped.
    """
    lines: Iterator[tuple[int, bytes]] = (
        line for line in numbered(path, most) if not line[1].lstrip().startswith(FENCE)
    )
    head, size = list[tuple[int, bytes]](), 0
    for line in lines:
        head.append(line)
        size += len(line[1])
        if len(head) == HEAD or size > MAX_HEAD:
            break
    if not head:
        raise InputError("the log is empty")
    lines, why = chain(head, lines), "not JSON"
    if not _is_printed(head):
        records = read_stream(lines) if is_stream(head[0][1]) else read_records(lines, most, bad)
        try:
            yield from _requests(records, texts or Texts(), bad)
            return
        except NotJSON as error:  # such as a reply that was shortened by hand
            why, lines = str(error), enumerate(error.text.splitlines())
    rows = read_printed(line.decode("utf-8", "replace") for _, line in lines)
    row = next(rows, None)
    if row is None:
        raise InputError(f"{why}, and {NOTHING}")
    yield from chain([row], rows)


def is_log(path: str | Path) -> bool:
    """Returns whether a file is a log, not a trace, whose first line has an ``event``. Raises ``InputError`` if unreadable."""
    first = next(numbered(path), (0, b""))[1].lstrip()
    return bool(first) and not (first.startswith(b"{") and b'"event"' in first)


def read_runs(path: str | Path) -> Iterator[Trace]:
    """Yields the runs of a trace, or the requests of a log that have steps. Raises ``InputError`` if there are no steps."""
    if not is_log(path):
        yield from read_traces(path)
        return
    row, runs = None, 0
    for found in import_log(path):
        if isinstance(found, Figures):
            row = row or found
        else:
            runs += 1
            yield found
    if not runs and row is not None:
        raise InputError(no_steps(row))


def no_steps(row: Figures) -> str:
    """Returns the error message for a log with totals only, such as this row."""
    return (
        f"this log holds only totals, no steps ({row}); {row.unknown}. `d2sd trace import FILE` prints all totals, and "
        "`d2sd doctor --log FILE` explains them"
    )


def _is_printed(head: list[tuple[int, bytes]]) -> bool:
    """Returns whether a log is printed text. The first line of ``head`` that is a record or has figures of drafts decides."""
    first = head[0][1]
    if is_stream(first) or DOCUMENT.match(first) or isinstance(parsed(first), list | dict):
        return False
    for _, line in head:
        record = parsed(line)
        if isinstance(record, dict) and (is_dump(record) or "response" in record or _reader(record) is not None):
            return False
        text = line[:MAX_LINE].decode("utf-8", "replace")
        if record is None and (SAMPLE.match(text) or begins(text)[0]):
            return True
    return True


def _reader(reply: dict[str, Any]) -> Callable[[dict[str, Any], str], Request] | None:
    return next((read for fits, read in READERS if fits(reply)), None)


def _requests(records: Iterator[Record], texts: Texts, bad: Bad | None) -> Iterator[Trace | Figures]:
    for where, record in records:
        if is_dump(record):
            yield from read_dump(chain([(where, record)], records), texts)
            return
        try:
            inner, given = (
                record.get("response"),
                {name: record[name] for name in ("prompt", "domain") if isinstance(record.get(name), str)},
            )
            reply = {**inner, **given} if isinstance(inner, dict) else record
            if (read := _reader(reply)) is None:
                raise InputError(_unknown(where, record))
            found = replace(read(reply, where), domain=given.get("domain")).result(texts)
        except InputError as error:
            if bad is None:
                raise
            bad(str(error))
        else:
            yield found


def _unknown(where: str, record: dict[str, Any]) -> str:
    if "event" in record:
        return f"{where}: this is a line of a trace; open the file as a trace"
    if "error" in record:
        return f"{where}: the server answered with an error; --skip-bad skips such records"
    known = escaped(", ".join(list(record)[:6])[:120])
    return f"{where}: unknown log format (fields: {known or 'none'}); docs/import.md lists the replies that have figures of drafts"
