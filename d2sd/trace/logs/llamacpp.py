"""llama.cpp's server: ``timings`` of a reply. The target passes once over the prompt, which gives the first token, and once a step,
which gives the accepted ones and one more: the passes are ``predicted_n`` − ``draft_n_accepted``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Any

from msgspec import Meta, Struct

from d2sd.errors import InputError
from d2sd.trace.events import Count
from d2sd.trace.logs.requests import Counts
from d2sd.trace.logs.reply import read_reply
from d2sd.trace.logs.records import convert
from d2sd.trace.logs.sse import PARTS

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
    parts = [p for p in record.get(PARTS, ()) if isinstance(p.get("timings"), dict)]
    if sum(isinstance(p.get("tokens"), list) for p in parts) > 1:
        return streamed(None, [], parts)
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
    steps = found.predicted_n - found.draft_n_accepted - 1
    return Counts(ENGINE, place, steps if steps > 0 else None, found.draft_n_accepted, found.draft_n, **said)


def streamed(prompt: str | None, given: Sequence[Any], parts: Sequence[dict[str, Any]]) -> Counts:
    """The counts of a streamed reply: parts with the same time are of one step, of which the totals say what it drafted.

    Where a step sent none of its tokens (each ended inside a character) steps cannot be told apart: then totals are left.
    """
    read = [(p, timings(p, "reply")) for p in parts]
    drafted, accepted, elapsed, ids, pieces = [], [], [], [], []
    d = a = n = 0
    clear = True
    for place, (milliseconds, found) in enumerate(
        groupby((r for r in read if r[0].get("tokens")), lambda r: r[1].predicted_ms)
    ):
        group = list(found)
        ids += [t for part, _ in group for t in part["tokens"]]
        pieces += [str(part.get("content", "")) for part, _ in group]
        last = group[-1][1]
        step = ((last.draft_n or 0) - d, (last.draft_n_accepted or 0) - a, last.predicted_n - n)
        d, a, n = last.draft_n or 0, last.draft_n_accepted or 0, last.predicted_n
        if place:
            drafted.append(step[0])
            accepted.append(step[1])
            elapsed.append(milliseconds / 1e3)
            clear &= 1 <= step[2] <= step[1] + 1 and 0 <= step[1] <= step[0]
        else:
            clear &= step == (0, 0, 1)
    end, totals = read[-1]
    whole = clear and len(ids) == len(pieces) == n and all(isinstance(t, int) and t >= 0 for t in ids)
    pairs = [
        (p["id"], str(p["piece"]))
        for p in given
        if isinstance(p, dict) and isinstance(p.get("id"), int) and "piece" in p
    ]
    known = len(pairs) == len(given)
    model = end.get("model")
    return Counts(
        ENGINE, "reply", len(accepted) if clear else None, totals.draft_n_accepted or 0, totals.draft_n or 0,
        accepted=tuple(accepted) if clear else None, drafted=tuple(drafted) if clear else None,
        completion=n, prompt_tokens=totals.prompt_n + totals.cache_n, prompt=prompt,
        prompt_ids=tuple(i for i, _ in pairs) if known else (), prompt_pieces=tuple(t for _, t in pairs) if known else (),
        output_ids=tuple(ids) if whole else None, pieces=tuple(pieces) if whole else (), text="".join(pieces),
        finish={"eos": "stop", "limit": "length"}.get(str(end.get("stop_type"))), seconds=totals.predicted_ms / 1e3,
        prefill_seconds=totals.prompt_ms / 1e3, model=model.rpartition("/")[2] if isinstance(model, str) else None,
        elapsed=tuple(elapsed) if clear else (),
    )  # fmt: skip
