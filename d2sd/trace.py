"""Traces: a run as JSON lines (header, prefill, steps, totals), written while running and read back.

The same lines feed the page, so a trace file and a live run look alike to everything that draws.
"""

from __future__ import annotations

import gzip
import platform
import types
import typing
import uuid
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
import torch

from d2sd.config import DecodeConfig
from d2sd.errors import InputError
from d2sd.events import Event, Finished, PrefillDone, StepDone
from d2sd.metrics import Totals, totals

SCHEMA = 2
MAX_BYTES = 512 * 2**20
KINDS: dict[str, type] = {c.__name__: c for c in (PrefillDone, StepDone, Finished)}
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
        body = orjson.dumps(event)
    except TypeError:  # a lone surrogate in some text
        data = event if isinstance(event, dict) else asdict(event)
        body = orjson.dumps(_encodable(data))
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
    steps: tuple[StepDone, ...]
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
    """Read a trace file (plain or gzip); ``InputError`` names the line and field at fault."""
    try:
        with open(path, "rb") as f:
            raw = f.read(MAX_BYTES + 1)
        if raw[:2] == b"\x1f\x8b":
            with gzip.open(path) as f:
                raw = f.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot read the trace {path}: {error}") from None
    if len(raw) > MAX_BYTES:
        raise InputError(f"the trace {path} is larger than {MAX_BYTES // 2**20} MiB")
    return parse_trace(raw)


def parse_trace(raw: bytes) -> Trace:
    """Parse the lines of a trace. A last line cut off in the middle (a killed run) is dropped."""
    lines = raw.split(b"\n")
    complete, rest = lines[:-1], lines[-1]
    if rest.strip():
        try:
            orjson.loads(rest)
            complete.append(rest)
        except orjson.JSONDecodeError:
            pass
    header: dict[str, Any] | None = None
    events: list[Any] = []
    for number, line in enumerate(complete, 1):
        try:
            data = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise InputError(f"trace line {number}: not JSON ({error})") from None
        kind = data.get("event") if isinstance(data, dict) else None
        if number == 1:
            if kind != "Header" or not isinstance(data.get("schema"), int):
                raise InputError("trace line 1: not the header of a trace")
            if data["schema"] > SCHEMA:
                raise InputError(f"this trace has schema {data['schema']}; this version reads up to {SCHEMA}")
            header = data
        elif kind in KINDS:
            events.append(_build(KINDS[kind], {k: v for k, v in data.items() if k != "event"}, f"trace line {number}"))
    if header is None:
        raise InputError("the trace is empty")
    return Trace.of(header, events)


@cache
def _types(cls: type) -> tuple[dict[str, Any], set[str]]:
    """Field types, and the fields that older schemas may lack because they have a default."""
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}, {f.name for f in fields(cls) if f.default is not MISSING}


def _build(kind: Any, value: Any, where: str) -> Any:
    """``value`` as an instance of the annotated type ``kind``, or an ``InputError`` at ``where``."""
    origin = typing.get_origin(kind)
    if is_dataclass(kind):
        hints, optional = _types(typing.cast(type, kind))
        if not isinstance(value, dict) or not set(hints) - optional <= set(value) <= set(hints):
            wrong = sorted(set(hints) ^ set(value)) if isinstance(value, dict) else ["not an object"]
            raise InputError(f"{where}: missing or unknown fields: {', '.join(str(w)[:40] for w in wrong[:5])}")
        return typing.cast(Any, kind)(**{k: _build(hints[k], v, f"{where}, {k}") for k, v in value.items()})
    if origin is tuple:
        if not isinstance(value, list):
            raise InputError(f"{where}: a list is needed")
        inner = typing.get_args(kind)[0]
        return tuple(_build(inner, v, where) for v in value)
    if origin is typing.Literal:
        if value not in typing.get_args(kind):
            raise InputError(f"{where}: {str(value)[:40]!r} is not one of {', '.join(typing.get_args(kind))}")
        return value
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _build(typing.get_args(kind)[0], value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{where}: {kind.__name__} is needed, not {type(value).__name__}")
    return value
