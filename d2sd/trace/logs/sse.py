"""A captured stream of server-sent events as replies: the deltas of each put together, its figures from the last part that has
them. A part of llama.cpp with running totals says what its step drafted, so that its steps are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from d2sd.errors import InputError
from d2sd.trace.logs.records import Row

STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
LAST = ("usage", "metrics", "sglext", "timings", "meta_info", "model", "id", "stop_type")
PARTS = "parts"  # of a merged reply: all parts of it, as they came
MOST_PARTS = 1_000_000


def is_stream(line: bytes) -> bool:
    """Whether a line is one of such a stream."""
    return line.lstrip().startswith(STARTS)


def replies(lines: Iterable[tuple[int, bytes]], first: int = 1) -> Iterator[Row]:
    """One reply after another. It ends at ``[DONE]``, at a part with another ``id``, or at the end of the file."""
    parts: list[dict[str, Any]] = []
    began = first
    for number, line in lines:
        line = line.strip()
        if not line.startswith(b"data:"):
            if line and not line.startswith(STARTS):
                raise InputError(f"line {number}: no line of an event stream; its lines begin with data:")
            continue
        body = line[5:].strip()
        if body == b"[DONE]":
            if parts:
                yield f"line {began}", merged(parts)
            parts = []
            continue
        try:
            part = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise InputError(f"line {number}: not JSON ({error})") from None
        if not isinstance(part, dict):
            raise InputError(f"line {number}: not a JSON object")
        if parts and part.get("id") != parts[-1].get("id"):
            yield f"line {began}", merged(parts)
            parts = []
        began = began if parts else number
        parts.append(part)
        if len(parts) > MOST_PARTS:
            raise InputError(f"line {number}: a reply of more than {MOST_PARTS} parts")
        if part.get("stop") is True:  # llama.cpp's own interface ends so
            yield f"line {began}", merged(parts)
            parts = []
    if parts:
        yield f"line {began}", merged(parts)


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The reply that these parts are of."""
    reply: dict[str, Any] = {name: part[name] for part in parts for name in LAST if part.get(name) is not None}
    text, ids, finish = "", list[Any](), None
    for part in parts:
        choices = part.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        delta = choice.get("delta")
        said = choice.get("text") or (delta.get("content") if isinstance(delta, dict) else None) or part.get("content")
        text += said if isinstance(said, str) else ""
        ids += choice["token_ids"] if isinstance(choice.get("token_ids"), list) else []
        finish = choice.get("finish_reason") or finish
    if any("choices" in part for part in parts):
        reply["choices"] = [{"text": text, "finish_reason": finish, **({"token_ids": ids} if ids else {})}]
    else:
        reply["content"] = text
    first = parts[0].get("choices")
    given = (
        first[0].get("prompt_token_ids") if isinstance(first, list) and first and isinstance(first[0], dict) else None
    )
    if (given := given or parts[0].get("prompt_token_ids")) is not None:
        reply["prompt_token_ids"] = given
    return {**reply, PARTS: parts}
