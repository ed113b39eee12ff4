"""Writing the lines of a trace."""

from __future__ import annotations

from typing import Any

import msgspec

from d2sd.trace.events import Event

_encoder = msgspec.json.Encoder()
# The last field of a step that was not inspected: left out, so that a line of an older trace is written as it was read.
_NOTHING = b',"target_tops":[]}'


def to_line(event: Event | dict[str, Any]) -> str:
    """One JSON line, newline included. Text that no encoding can hold is replaced, never refused."""
    kind = b"" if isinstance(event, dict) else b'{"event":"%s",' % type(event).__name__.encode()
    try:
        body = _encoder.encode(event)
    except UnicodeEncodeError:  # a lone surrogate in some text
        body = _encoder.encode(_encodable(msgspec.to_builtins(event)))
    if body.endswith(_NOTHING):
        body = body[: -len(_NOTHING)] + b"}"
    return (kind + body[1:] if kind else body).decode() + "\n"


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {k: _encodable(v) for k, v in value.items()}
    return [_encodable(v) for v in value] if isinstance(value, list | tuple) else value
