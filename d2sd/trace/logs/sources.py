"""Recognises which engine a log comes from, and reads its requests one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from d2sd.errors import InputError
from d2sd.trace.logs import benches, engines, llamacpp, sglang, spec_dump
from d2sd.trace.logs.chain import Texts
from d2sd.trace.logs.requests import Counts
from d2sd.trace.logs.records import Bad, Row, numbered, read_rows
from d2sd.trace.logs.sse import is_stream, replies
from d2sd.trace.logs.printed import read_metrics, read_text
from d2sd.trace.logs.totals import Totals
from d2sd.trace.reader import MAX_BYTES
from d2sd.trace.text import escaped
from d2sd.trace.trace import Trace

Fits = Callable[[dict[str, Any]], bool]
# By content the first that fits is taken.
REPLIES: dict[str, tuple[Fits, Callable[[dict[str, Any], str], Counts]]] = {
    "sglang": (sglang.fits, sglang.read),
    "vllm": (engines.fits, engines.read),
    "llamacpp": (llamacpp.fits, llamacpp.read),
}
FIGURES: dict[str, tuple[Fits, Callable[[dict[str, Any], str], Iterator[Totals]]]] = {
    "modelopt": (benches.modelopt_fits, benches.read_modelopt),
    "eagle": (benches.eagle_fits, benches.read_eagle),
    "trtllm": (benches.trtllm_fits, benches.read_trtllm),
    "specforge": (benches.specforge_fits, benches.read_specforge),
}
SOURCES = ("auto", *sorted([*REPLIES, *FIGURES, "spec-dump", "text"]))
PRINTED = (
    "SpecDecoding metrics: … (vLLM, unless --disable-log-stats), Decode batch … accept len: … (SGLang with speculation), "
    "draft acceptance = … (llama.cpp), or the page of /metrics"
)


def is_trace(record: dict[str, Any]) -> bool:
    """Whether a record is a line of a trace."""
    return "event" in record


def import_log(
    path: str | Path, source: str = "auto", texts: Texts | None = None, most: int = MAX_BYTES, bad: Bad | None = None
) -> Iterator[Trace | Totals]:
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
    rows = replies(lines, head[0]) if is_stream(head[1]) else read_rows(lines, most, bad)
    yield from _requests(rows, source, texts or Texts(), bad)


def _printed(lines: Iterator[tuple[int, bytes]]) -> Iterator[Totals]:
    """What a server printed, or its ``/metrics``."""
    decoded = (line.decode("utf-8", "replace") for _, line in lines)
    first = next(decoded, "")
    everything = chain([first], decoded)
    if first.startswith(("# HELP", "# TYPE", "vllm:", "sglang:")):
        figures = read_metrics("".join(everything))
        rows = iter([] if figures is None else [figures.totals()])
    else:
        rows = read_text(everything)
    found = False
    for row in rows:
        found = True
        yield row
    if not found:
        raise InputError(f"line 1: not JSON, and nothing of what servers print of their drafts: {PRINTED}")


def _requests(rows: Iterator[Row], source: str, texts: Texts, bad: Bad | None) -> Iterator[Trace | Totals]:
    chosen = source
    if source == "auto":
        chosen, rows = _recognised(rows, bad)
    if chosen == "spec-dump":
        yield from spec_dump.read(rows, texts)
        return
    for where, record in rows:
        try:
            if chosen in FIGURES:
                found: list[Trace | Totals] = [*FIGURES[chosen][1](record, where)]
            else:
                counts = REPLIES[chosen][1](_reply(record), where)
                domain = record.get("domain")
                found = [replace(counts, domain=domain if isinstance(domain, str) else None).result(texts)]
        except InputError as error:
            if bad is None:
                raise
            bad(str(error))
            continue
        yield from found


def _reply(record: dict[str, Any]) -> dict[str, Any]:
    """The reply of a record, with the prompt that stands beside it."""
    inner = record.get("response")
    if not isinstance(inner, dict):
        return record
    prompt = record.get("prompt")
    return {**inner, **({"prompt": prompt} if isinstance(prompt, str) else {})}


def _recognised(rows: Iterator[Row], bad: Bad | None) -> tuple[str, Iterator[Row]]:
    """The source of the first record that is of a known one, and the rows from it on."""
    for where, record in rows:
        rest = chain([(where, record)], rows)
        if spec_dump.fits(record):
            return "spec-dump", rest
        reply = _reply(record)
        for name, (fits, _) in {**REPLIES, **FIGURES}.items():
            if fits(reply):
                return name, rest
        if bad is None:
            raise InputError(_unknown(where, record))
        bad(_unknown(where, record))
    raise InputError("no record of it is of a log that is known here" if bad else "the log is empty")


def _unknown(where: str, record: dict[str, Any]) -> str:
    if is_trace(record):
        return f"{where}: this is a line of a trace already; open it as it is"
    if "error" in record:
        return f"{where}: the server answered with an error; --skip-bad leaves such records out"
    known = escaped(", ".join(list(record)[:6])[:120])
    return (
        f"{where}: this is no log that is known here (it has {known or 'no fields'}); name its engine with --from: "
        f"{', '.join(SOURCES[1:])}"
    )
