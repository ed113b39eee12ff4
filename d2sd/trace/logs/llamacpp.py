"""llama.cpp's server: ``timings`` of a reply, totals without steps."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from d2sd.errors import InputError
from d2sd.trace.events import Count
from d2sd.trace.logs.counts import Counts
from d2sd.trace.logs.reply import read_reply
from d2sd.trace.logs.rows import convert

ENGINE = "llama.cpp"
Milliseconds = Annotated[float, Meta(ge=0)]


class Timings(Struct):
    """Totals of one request; the drafts are left out where nothing was drafted."""

    predicted_n: Count
    predicted_ms: Milliseconds
    prompt_n: Count = 0
    prompt_ms: Milliseconds = 0.0
    cache_n: Count = 0
    draft_n: Count | None = None
    draft_n_accepted: Count | None = None


def fits(record: dict[str, Any]) -> bool:
    """Whether a record is a reply of llama.cpp's server."""
    return "timings" in record


def timings(record: dict[str, Any], where: str) -> Timings:
    """The totals of a reply, or, of a streamed one, up to a part."""
    return convert(record.get("timings"), Timings, f"{where}: timings")


def read(record: dict[str, Any], where: str) -> Counts:
    """The counts of one reply."""
    place = f"{where}: timings"
    found = timings(record, where)
    if found.draft_n is None or found.draft_n_accepted is None:
        raise InputError(f"{place}.draft_n: it is missing; nothing was drafted for this request")
    if found.draft_n_accepted > found.predicted_n:
        raise InputError(
            f"{place}.draft_n_accepted: {found.draft_n_accepted} tokens, the output has {found.predicted_n}"
        )
    said = read_reply(record, where)
    said["completion"], said["prompt_tokens"] = found.predicted_n, found.prompt_n + found.cache_n
    said["text"] = record.get("content") if isinstance(record.get("content"), str) else said["text"]
    said["seconds"], said["prefill_seconds"] = found.predicted_ms / 1e3, found.prompt_ms / 1e3
    return Counts(ENGINE, place, None, found.draft_n_accepted, found.draft_n, **said)
