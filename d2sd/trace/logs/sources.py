"""Recognises which engine a log comes from, and reads its requests one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from d2sd.errors import InputError
from d2sd.trace.logs.engines import READERS, is_dump, read_dump
from d2sd.trace.logs.forms import begins
from d2sd.trace.logs.printed import MAX_LINE, read_metrics, read_printed
from d2sd.trace.logs.records import Bad, NotJSON, Record, is_stream, numbered, parsed, read_records, read_stream
from d2sd.trace.logs.requests import LogTotals, Texts
from d2sd.trace.text import escaped
from d2sd.trace.trace import MAX_BYTES, Trace, read_traces

# "auto" recognises the source by the content of the log.
SOURCES = ("auto", *sorted([*READERS, "spec-dump", "text"]))
HEAD, MAX_HEAD = 50, 2**20  # numbers of lines and bytes at the start of a log by which its format is recognised
FENCE = b"```"  # Markdown fence around a log that was copied from a thread
METRICS = (b"# HELP ", b"# TYPE ", b"vllm:", b"sglang:")
DOCUMENT = re.compile(rb"\s*(?:\{\s*(?:[\"}]|$)|\[\s*(?:[\[{\"\]]|$))")  # first line of a multi-line JSON document
NOTHING = (
    "no figures of speculative decoding were recognised; supported are “SpecDecoding metrics: …” of vLLM, “Decode batch … accept len: …” of SGLang, “draft acceptance = …” of llama.cpp, “[AL] AVERAGE” of "
    "TensorRT-LLM, their benchmarks, /metrics pages and JSON replies"
)


def import_log(
    path: str | Path, source: str = "auto", texts: Texts | None = None, most: int = MAX_BYTES, bad: Bad | None = None
) -> Iterator[Trace | LogTotals]:
    """Yields the requests of a log, or its rows of totals, one at a time. Raises ``InputError``, which names the line and field.

    A record is either a reply, or an object with the fields ``response`` (the reply) and, optionally, ``prompt`` and ``domain``.

    most: maximum size of the unpacked file in bytes.
    bad: called with the error of an invalid record, which is then skipped.
    """
    if source not in SOURCES:
        raise InputError(f"unknown source {source}; choose one of: {', '.join(SOURCES)}")
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
    lines = chain(head, lines)
    if source == "text" or (source == "auto" and _is_printed(head)):
        yield from _printed(head, lines)
        return
    records = read_stream(lines) if is_stream(head[0][1]) else read_records(lines, most, bad)
    try:
        yield from _requests(records, source, texts or Texts(), bad)
    except NotJSON as error:  # such as a reply that was shortened by hand
        rows = list(read_printed(error.text.decode("utf-8", "replace").splitlines())) if source == "auto" else []
        if not rows:
            raise InputError(f"{error}, and {NOTHING}") from None
        yield from rows


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
        if isinstance(found, LogTotals):
            row = row or found
        else:
            runs += 1
            yield found
    if not runs and row is not None:
        raise InputError(no_steps(row))


def no_steps(row: LogTotals) -> str:
    """Returns the error message for a log with totals only, such as this row."""
    return (
        f"this log holds only totals, no steps ({escaped(row.row())}); {row.unknown}. `d2sd trace import FILE` prints all totals, and "
        "`d2sd doctor --log FILE` explains them"
    )


def _is_printed(head: list[tuple[int, bytes]]) -> bool:
    """Returns whether a log is printed text. The first line of ``head`` that is a record or has figures of drafts decides."""
    first = head[0][1]
    if is_stream(first):
        return False
    for number, (_, line) in enumerate(head):
        record = parsed(line)
        if (isinstance(record, list | dict) and (not number or _is_known(record))) or (
            not number and DOCUMENT.match(line)
        ):
            return False
        if record is None and (line.startswith(METRICS) or begins(line[:MAX_LINE].decode("utf-8", "replace"))):
            return True
    return True


def _is_known(record: Any) -> bool:
    if not isinstance(record, dict):
        return False
    reply = _reply(record)
    return is_dump(record) or reply is not record or _source_of(reply) is not None


def _source_of(reply: dict[str, Any]) -> str | None:
    return next((name for name, (fits, _) in READERS.items() if fits(reply)), None)


def _printed(head: list[tuple[int, bytes]], lines: Iterator[tuple[int, bytes]]) -> Iterator[LogTotals]:
    decoded = (line.decode("utf-8", "replace") for _, line in lines)
    metrics = any(line.startswith(METRICS) for _, line in head)
    rows = read_metrics(decoded) if metrics else read_printed(decoded)
    row = next(rows, None)
    if row is None:
        raise InputError(f"not JSON, and {NOTHING}")
    yield row
    yield from rows


def _requests(records: Iterator[Record], source: str, texts: Texts, bad: Bad | None) -> Iterator[Trace | LogTotals]:
    chosen = source
    if source == "auto":
        chosen, records = _recognised(records, bad)
    if chosen == "spec-dump":
        yield from read_dump(records, texts)
        return
    for where, record in records:
        if source == "auto":  # a file may hold replies of several engines
            chosen = _source_of(_reply(record)) or chosen
        try:
            counts = READERS[chosen][1](_reply(record), where)
            domain = record.get("domain")
            found = replace(counts, domain=domain if isinstance(domain, str) else None).result(texts)
        except InputError as error:
            if bad is None:
                raise
            bad(str(error))
            continue
        yield found


def _reply(record: dict[str, Any]) -> dict[str, Any]:
    """Returns the reply of a record, with the record's prompt."""
    inner = record.get("response")
    if not isinstance(inner, dict):
        return record
    prompt = record.get("prompt")
    return {**inner, **({"prompt": prompt} if isinstance(prompt, str) else {})}


def _recognised(records: Iterator[Record], bad: Bad | None) -> tuple[str, Iterator[Record]]:
    """Returns the source of the first record that a reader accepts, and this record with all later ones."""
    for where, record in records:
        rest = chain([(where, record)], records)
        if is_dump(record):
            return "spec-dump", rest
        if (name := _source_of(_reply(record))) is not None:
            return name, rest
        if bad is None:
            raise InputError(_unknown(where, record))
        bad(_unknown(where, record))
    raise InputError("no record has a known format" if bad else "the log is empty")


def _unknown(where: str, record: dict[str, Any]) -> str:
    if "event" in record:
        return f"{where}: this is a line of a trace; open the file as a trace"
    if "error" in record:
        return f"{where}: the server answered with an error; --skip-bad skips such records"
    known = escaped(", ".join(list(record)[:6])[:120])
    return (
        f"{where}: unknown log format (fields: {known or 'none'}); name the engine with --from: "
        f"{', '.join(SOURCES[1:])}"
    )
