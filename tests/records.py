"""Lines of traces as the records that runs are made from, whether or not they would pass the strict reading."""

from __future__ import annotations

import json

from d2sd.errors import InputError
from d2sd.trace.checks import read_event
from d2sd.trace.events import EVENTS, Record


def record(line: str) -> Record:
    """The content of a line: an event where it can be one, else a dict."""
    content: dict = json.loads(line)
    try:
        return read_event(line.encode("utf-8", "replace")) if content["event"] in EVENTS else content
    except InputError:
        return content
