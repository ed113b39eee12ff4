"""Recognises which engine a log comes from, and reads its requests one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from d2sd.errors import InputError
from d2sd.trace.logs.engines import ENGINES, is_dump, read_dump
from d2sd.trace.logs.printed import BENCHMARKS, read_metrics, read_text
from d2sd.trace.logs.records import Bad, Record, is_stream, numbered, read_records, read_stream
from d2sd.trace.logs.requests import LogTotals, Texts
from d2sd.trace.text import escaped
from d2sd.trace.trace import MAX_BYTES, Trace

# By content the first source that fits is taken.
FITS = {name: fits for readers in (ENGINES, BENCHMARKS) for name, (fits, _) in readers.items()}
SOURCES = ("auto", *sorted([*FITS, "spec-dump", "text"]))
PRINTED = (
    "SpecDecoding metrics: … (vLLM, unless --disable-log-stats), Decode batch … accept len: … (SGLang with speculation), "
    "draft acceptance = … (llama.cpp), or the page of /metrics"
)


def import_log(
    path: str | Path, source: str = "auto", texts: Texts | None = None, most: int = MAX_BYTES, bad: Bad | None = None
) -> Iterator[Trace | LogTotals]:
    """Yields the requests of a log one at a time. Raises ``InputError``, which names the line and field.

    A record is a reply, or an object with the reply under ``response``, and optionally ``prompt`` and ``domain``.

    most: maximum size of the unpacked file in bytes.
    bad: called with the error of an invalid record, which is then skipped.
    """
    if source not in SOURCES:
        raise InputError(f"there is no source {source}; choose one of: {', '.join(SOURCES)}")
    lines = numbered(path, most)
    head = next(lines, None)
    if head is None:
        raise InputError("the log is empty")
    lines = chain([head], lines)
    start = head[1].lstrip()[:1]
    if source == "text" or (source == "auto" and start not in b"{[" and not is_stream(head[1])):
        yield from _printed(lines)
        return
    records = read_stream(lines) if is_stream(head[1]) else read_records(lines, most, bad)
    yield from _requests(records, source, texts or Texts(), bad)


def _printed(lines: Iterator[tuple[int, bytes]]) -> Iterator[LogTotals]:
    """The figures in what a server printed, or in its ``/metrics``."""
    decoded = (line.decode("utf-8", "replace") for _, line in lines)
    first = next(decoded, "")
    everything = chain([first], decoded)
    if first.startswith(("# HELP", "# TYPE", "vllm:", "sglang:")):
        rows = read_metrics(everything)
    else:
        rows = read_text(everything)
    row = next(rows, None)
    if row is None:
        raise InputError(f"line 1: not JSON, and nothing of what servers print of their drafts: {PRINTED}")
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
        try:
            if chosen in BENCHMARKS:
                found: list[Trace | LogTotals] = [*BENCHMARKS[chosen][1](record, where)]
            else:
                counts = ENGINES[chosen][1](_reply(record), where)
                domain = record.get("domain")
                found = [replace(counts, domain=domain if isinstance(domain, str) else None).result(texts)]
        except InputError as error:
            if bad is None:
                raise
            bad(str(error))
            continue
        yield from found


def _reply(record: dict[str, Any]) -> dict[str, Any]:
    """The reply of a record, with the prompt beside it."""
    inner = record.get("response")
    if not isinstance(inner, dict):
        return record
    prompt = record.get("prompt")
    return {**inner, **({"prompt": prompt} if isinstance(prompt, str) else {})}


def _recognised(records: Iterator[Record], bad: Bad | None) -> tuple[str, Iterator[Record]]:
    """The source of the first record that any reader fits, and the records from it on."""
    for where, record in records:
        rest = chain([(where, record)], records)
        if is_dump(record):
            return "spec-dump", rest
        reply = _reply(record)
        for name, fits in FITS.items():
            if fits(reply):
                return name, rest
        if bad is None:
            raise InputError(_unknown(where, record))
        bad(_unknown(where, record))
    raise InputError("no record of it is of a log that is known here" if bad else "the log is empty")


def _unknown(where: str, record: dict[str, Any]) -> str:
    if "event" in record:
        return f"{where}: this is a line of a trace already; open it as it is"
    if "error" in record:
        return f"{where}: the server answered with an error; --skip-bad leaves such records out"
    known = escaped(", ".join(list(record)[:6])[:120])
    return (
        f"{where}: this is no log that is known here (it has {known or 'no fields'}); name its engine with --from: "
        f"{', '.join(SOURCES[1:])}"
    )
