"""The input of the viewer: the lines of a trace, with a line before each step that holds its outcome.

These lines are not part of a trace: ``{"event":"Verdict","verdict":"repaired","gained":2,"closed":null}`` holds the results of
``verdict``, ``tokens_gained`` and ``closed_from`` in ``d2sd.trace.metrics``.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from d2sd.errors import InputError
from d2sd.trace.events import Event, StepDone
from d2sd.trace.metrics import closed_from, instructiveness, tokens_gained, verdict
from d2sd.trace.schema import kind_of, read_event
from d2sd.trace.writer import to_line

PACKED = "~"
VERDICT = '{"event":"Verdict"'


def pack_line(line: str) -> str:
    """Returns the compressed form of a line: ``~`` and the base64 of its raw deflate stream, about a tenth as long."""
    deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = deflate.compress(line.encode("utf-8", "replace")) + deflate.flush()
    return f"{PACKED}{base64.b64encode(packed).decode()}"


def unpack_line(line: str) -> str:
    """Returns the input of ``pack_line``; any other line unchanged."""
    return zlib.decompress(base64.b64decode(line[1:]), -zlib.MAX_WBITS).decode() if line.startswith(PACKED) else line


class Judge:
    """Judges the steps of one run while its lines come by.

    instructive: number of the most instructive step so far (``d2sd.trace.metrics.instructiveness``); 0 if there is none.
    """

    def __init__(self) -> None:
        self.instructive = 0
        self._best: tuple[int, ...] = ()
        self._steps = 0
        self._method = ""

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Yields the lines of a trace, with or without their newlines, and before each step its verdict."""
        for line in lines:
            raw = line.encode("utf-8", "replace")
            try:
                kind = kind_of(raw)
                if kind == "Header":
                    self._method = str(msgspec.json.decode(raw).get("method"))
                elif kind == "StepDone":
                    yield self._judged(read_event("StepDone", raw))
            except (InputError, msgspec.DecodeError):
                pass  # nothing that could be judged; the viewer leaves out what it cannot read
            yield line

    def event_lines(self, event: Event | dict[str, Any]) -> Iterator[str]:
        """Yields the line of an event, a header or another record, and before a step's its verdict."""
        if isinstance(event, StepDone):
            yield self._judged(event)
        elif isinstance(event, dict) and event.get("event") == "Header":
            self._method = str(event.get("method"))
        yield to_line(event)

    def _judged(self, step: StepDone) -> str:
        """Returns the verdict of the next step."""
        number, self._steps = self._steps, self._steps + 1
        if (worth := instructiveness(step)) > self._best:
            self._best, self.instructive = worth, number
        closed = closed_from(step, self._method)
        line = {"event": "Verdict", "verdict": verdict(step), "gained": tokens_gained(step), "closed": closed}
        return to_line(line).rstrip("\n")
