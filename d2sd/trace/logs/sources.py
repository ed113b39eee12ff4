"""Which log is of which engine, and its requests one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from d2sd.errors import InputError
from d2sd.trace.logs import aiperf, llamacpp, sglang, spec_dump, vllm
from d2sd.trace.logs.chain import Texts
from d2sd.trace.logs.counts import Counts
from d2sd.trace.logs.rows import Row, read_rows
from d2sd.trace.logs.totals import Totals
from d2sd.trace.reader import MAX_BYTES
from d2sd.trace.trace import Trace

# By content the first that fits is taken.
REPLIES: dict[str, tuple[Callable[[dict[str, Any]], bool], Callable[[dict[str, Any], str], Counts]]] = {
    "aiperf": (aiperf.fits, aiperf.read),
    "sglang": (sglang.fits, sglang.read),
    "vllm": (vllm.fits, vllm.read),
    "llamacpp": (llamacpp.fits, llamacpp.read),
}
SOURCES = ("auto", "vllm", "sglang", "llamacpp", "spec-dump", "aiperf")


def is_trace(record: dict[str, Any]) -> bool:
    """Whether a record is a line of a trace."""
    return "event" in record


def import_log(
    path: str | Path, source: str = "auto", texts: Texts | None = None, most: int = MAX_BYTES
) -> Iterator[Trace | Totals]:
    """The requests of a log, one after another and never all at once; ``most``: bytes of the file, unpacked.

    A reply may stand by itself or under ``response`` of a record, its prompt under ``prompt`` beside it. Raises ``InputError``,
    which names line and field at fault.
    """
    rows, texts = read_rows(path, most), texts or Texts()
    first = next(rows, None)
    if first is None:
        raise InputError("the log is empty")
    chosen = source if source != "auto" else _recognised(first)
    rows = chain([first], rows)
    if chosen == "spec-dump":
        yield from spec_dump.read(rows, texts)
        return
    if chosen not in REPLIES:
        raise InputError(f"there is no source {chosen}; choose one of: {', '.join(SOURCES)}")
    _, read = REPLIES[chosen]
    for where, record in rows:
        yield read(_reply(record), where).result(texts)


def _reply(record: dict[str, Any]) -> dict[str, Any]:
    """The reply of a record, with the prompt that stands beside it."""
    inner = record.get("response")
    if not isinstance(inner, dict):
        return record
    prompt = record.get("prompt")
    return {**inner, **({"prompt": prompt} if isinstance(prompt, str) else {})}


def _recognised(row: Row) -> str:
    where, record = row
    if spec_dump.fits(record):
        return "spec-dump"
    reply = _reply(record)
    for name, (fits, _) in REPLIES.items():
        if fits(reply):
            return name
    if is_trace(record):
        raise InputError(f"{where}: this is a line of a trace already; open it as it is")
    known = ", ".join(list(record)[:6])[:120]
    raise InputError(
        f"{where}: this is no log that is known here (it has {known or 'no fields'}); name its engine with --from: "
        f"{', '.join(SOURCES[1:])}"
    )
