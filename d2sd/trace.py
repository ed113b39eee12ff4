"""Traces: a run as JSON lines (header, prefill, steps, totals), written while running and read back.

The same lines feed the page, so a trace file and a live run look alike to everything that draws.
"""

from __future__ import annotations

import gzip
import platform
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import torch

from d2sd.config import DecodeConfig
from d2sd.events import Event, Finished, PrefillDone, StepDone
from d2sd.metrics import Totals, totals
from d2sd.reader import Reader, lines_of, read_file
from d2sd.schema import SCHEMA

_encoder = msgspec.json.Encoder()
PACKAGES = ("torch", "transformers")


def make_header(models: dict[str, Any], config: DecodeConfig, prompt: str | None, target: Any) -> dict[str, Any]:
    """First line of a trace; ``run`` is a fresh identifier."""
    return {
        "event": "Header",
        "schema": SCHEMA,
        "run": uuid.uuid4().hex,
        "method": config.method,
        "config": asdict(config),
        "models": models,
        "versions": _versions(),
        "hardware": {
            "device": torch.cuda.get_device_name(target.device) if target.device.type == "cuda" else "cpu",
            "machine": platform.machine(),
            "threads": torch.get_num_threads(),
            "dtype": str(target.dtype).removeprefix("torch."),
        },
        "prompt": prompt,
    }


@cache
def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}}


def to_line(event: Event | dict[str, Any]) -> str:
    """One JSON line, newline included. Text that no encoding can hold is replaced, never refused."""
    kind = b"" if isinstance(event, dict) else b'{"event":"%s",' % type(event).__name__.encode()
    try:
        body = _encoder.encode(event)
    except UnicodeEncodeError:  # a lone surrogate in some text
        body = _encoder.encode(_encodable(msgspec.to_builtins(event)))
    return (kind + body[1:] if kind else body).decode() + "\n"


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {k: _encodable(v) for k, v in value.items()}
    return [_encodable(v) for v in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded run. ``prefill`` and ``finished`` are None where recording was cut off."""

    header: dict[str, Any]
    prefill: PrefillDone | None
    steps: Sequence[StepDone]
    finished: Finished | None

    @classmethod
    def of(cls, header: dict[str, Any], events: Iterable[Event]) -> Trace:
        """Collect a stream of events."""
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
    def token_ids(self) -> list[int]:
        """Generated ids, prompt excluded."""
        return [c.token for s in self.steps for c in s.committed]

    @property
    def totals(self) -> Totals:
        """Acceptance, speed and stage times over all steps."""
        return totals(self.steps)

    def events(self) -> Iterator[Event]:
        """The stream it was recorded from."""
        if self.prefill:
            yield self.prefill
        yield from self.steps
        if self.finished:
            yield self.finished

    def lines(self) -> Iterator[str]:
        """The JSON lines of the trace file."""
        yield to_line(self.header)
        for event in self.events():
            yield to_line(event)

    def save(self, path: str | Path) -> None:
        """Write the trace; gzipped when the name ends in ``.gz``."""
        data = "".join(self.lines()).encode()
        Path(path).write_bytes(gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def load_trace(path: str | Path) -> Trace:
    """Read a trace file (plain or gzip); ``InputError`` names the line and field at fault.

    Everything is checked at once; the steps are kept as text and decoded when they are asked for.
    """
    return _trace(read_file(path))


def parse_trace(raw: bytes) -> Trace:
    """Read the lines of a trace. A last line cut off in the middle (a killed run) is dropped."""
    reader = Reader()
    reader.read(lines_of(raw))
    return _trace(reader)


def _trace(reader: Reader) -> Trace:
    assert reader.header is not None
    return Trace(reader.header, reader.prefill, reader.steps, reader.finished)
