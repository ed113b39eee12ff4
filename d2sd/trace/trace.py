"""Traces: a run as JSON lines (header, prefill, steps, totals), written while running and read back.

The page receives the same lines, so it draws a trace file and a live run in the same way.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d2sd.trace.events import Event, Finished, PrefillDone, StepDone
from d2sd.trace.files import write_whole
from d2sd.trace.metrics import Totals, totals
from d2sd.trace.reader import Reader, lines_of, read_file
from d2sd.trace.writer import to_line

MAX_DOMAIN = 60


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded run. ``prefill`` and ``finished`` are None if the recording ended before them."""

    header: dict[str, Any]
    prefill: PrefillDone | None
    steps: Sequence[StepDone]
    finished: Finished | None

    @classmethod
    def of(cls, header: dict[str, Any], events: Iterable[Event]) -> Trace:
        """Returns the trace of a stream of events."""
        prefill, steps, finished = None, [], None
        for event in events:
            if isinstance(event, StepDone):
                steps.append(event)
            elif isinstance(event, PrefillDone):
                prefill = event
            else:
                finished = event
        return cls(header, prefill, tuple(steps), finished)

    @property
    def prompt(self) -> str:
        """The text of the prompt, or its ids if the text was not stored; empty if neither is known."""
        ids = self.prefill.prompt_token_ids if self.prefill else ()
        return str(self.header.get("prompt") or ids or "")

    @property
    def domain(self) -> str:
        """The prompt group in the header, cut to ``MAX_DOMAIN`` characters; "all" if there is none."""
        name = str(self.header.get("domain") or "all").encode("utf-8", "replace").decode()
        return name if len(name) <= MAX_DOMAIN else name[: MAX_DOMAIN - 1] + "…"

    @property
    def missing(self) -> tuple[str, ...]:
        """The parts that an imported log lacks (``tokens``, ``rejected``, ``target``, ``confidence``, ``prompt``, ``times``);
        empty for a recorded run."""
        named = self.header.get("missing")
        return tuple(str(name) for name in named) if isinstance(named, list) else ()

    @property
    def token_ids(self) -> list[int]:
        """Generated ids, prompt excluded."""
        first = self.prefill.committed if self.prefill else ()
        return [c.token for done in (first, *(s.committed for s in self.steps)) for c in done]

    @property
    def totals(self) -> Totals:
        """Acceptance, speed and stage times over all steps."""
        return totals(self.steps, self.prefill)

    def events(self) -> Iterator[Event]:
        """Yields the events of the run."""
        if self.prefill:
            yield self.prefill
        yield from self.steps
        if self.finished:
            yield self.finished

    def lines(self) -> Iterator[str]:
        """Yields the JSON lines of the trace file."""
        yield to_line(self.header)
        for event in self.events():
            yield to_line(event)

    def save(self, path: str | Path) -> None:
        """Write the trace; gzipped when the name ends in ``.gz``. Raises ``InputError``."""
        data = "".join(self.lines()).encode()
        write_whole(path, gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def load_trace(path: str | Path) -> Trace:
    """Returns the trace in a file, plain or gzip. Raises ``InputError``, which names the line and field.

    The whole file is checked immediately. Steps are kept as text and parsed on access.
    """
    return trace_of(read_file(path))


def parse_trace(raw: bytes) -> Trace:
    """Returns the trace in these lines. A truncated last line (a killed run) is dropped. Raises ``InputError``."""
    reader = Reader()
    reader.read(lines_of(raw))
    return trace_of(reader)


def trace_of(reader: Reader) -> Trace:
    """Returns the trace of the lines that a reader has read."""
    assert reader.header is not None
    return Trace(reader.header, reader.prefill, reader.steps, reader.finished)
