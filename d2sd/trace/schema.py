"""The shape of a trace line, checked strictly: every field present, known, of its type and within its bounds.

``d2sd.trace.events`` is the schema. msgspec checks a line while parsing it, so long traces are quick to read. Only its own
classes can refuse unknown fields, so each event class gets a counterpart here, made from its annotations.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import orjson

from d2sd.errors import InputError
from d2sd.trace.events import Finished, PrefillDone, StepDone
from d2sd.trace.text import escaped

Line = bytes | memoryview
SCHEMA = 2
MAX_ITEMS = 4096  # of any list in a step, its nodes included
MAX_TEXTS = 2**20  # of the lists of a whole prompt or output
MAX_HEADER_DEPTH = 4
MAX_HEADER_ITEMS = 10_000
EVENTS: dict[str, Any] = {c.__name__: c for c in (PrefillDone, StepDone, Finished)}
# Every writer here puts the kind first, so that most lines are told apart without reading them.
_START = re.compile(rb'\{"event":"(\w{1,40})"')


class _Kind(msgspec.Struct):
    event: str


class Baseline(msgspec.Struct, tag_field="event", tag="Baseline", omit_defaults=True):
    """The measured speed of plain decoding, a line that the page adds to the runs that it makes.

    ``unwatched``: the speed of the run, timed again alternately with plain decoding, without drawing either.
    """

    tokens_per_second: Annotated[float, msgspec.Meta(gt=0)]
    unwatched: Annotated[float, msgspec.Meta(gt=0)] | None = None


class _Header(msgspec.Struct, tag_field="event", tag="Header"):
    """What the readers of a header rely on; it may hold more."""

    schema: Annotated[int, msgspec.Meta(ge=1)]
    run: Annotated[str, msgspec.Meta(max_length=200)]
    method: Annotated[str, msgspec.Meta(max_length=200)]
    config: dict[str, Any]
    models: dict[str, Any]
    versions: dict[str, Any]
    hardware: dict[str, Any]
    prompt: str | None


def kind_of(line: Line) -> str:
    """Returns the ``event`` of a line."""
    match = _START.match(line)
    return match[1].decode() if match else str(_decode(_decoder(_Kind), line).event)


def check_other(line: Line) -> None:
    """Check a line with an unknown event: it must be JSON with an ``event``; its other fields are not checked."""
    _decode(_decoder(_Kind), line)


def read_baseline(line: Line) -> dict[str, Any] | None:
    """Returns the content of a ``Baseline`` line; None for any other line."""
    try:
        fields: dict[str, Any] = msgspec.to_builtins(_decode(_decoder(Baseline), line))
    except InputError:
        return None
    return fields


def is_json(line: Line) -> bool:
    """Returns whether the line is complete JSON; the last line of a killed run is not."""
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def check_event(kind: str, line: Line) -> Any:
    """Returns the line as an object with the fields of its event class, but lists instead of tuples.

    Types and bounds are checked. Raises ``InputError``.
    """
    return _decode(_decoder(_strict(EVENTS[kind])), line)


def read_event(kind: str, line: Line) -> Any:
    """Returns a line that ``check_event`` accepted as an instance of its event class."""
    return _decoder(EVENTS[kind]).decode(line)


def read_header(line: Line) -> dict[str, Any]:
    """Returns the header as it was written, with all its fields."""
    _decode(_decoder(_Header), line)
    header: dict[str, Any] = _decode(_decoder(dict), line)
    if header["schema"] > SCHEMA:
        raise InputError(f"this trace has schema {header['schema']}; this version reads up to {SCHEMA}")
    _check_size(header)
    return header


def _check_size(header: dict[str, Any]) -> None:
    """A header may hold anything, but nothing that code which looks into it could stumble over."""
    level: list[Any] = [header]
    for _ in range(MAX_HEADER_DEPTH):
        level = [i for v in level if isinstance(v, dict | list) for i in (v.values() if isinstance(v, dict) else v)]
        if len(level) > MAX_HEADER_ITEMS:
            raise InputError(f"the header holds more than {MAX_HEADER_ITEMS} values side by side")
        if any(isinstance(v, int) and not -(2**63) <= v < 2**63 for v in level):
            raise InputError("the header holds a whole number that does not fit into 64 bits")
    if level:
        raise InputError(f"the header is nested more than {MAX_HEADER_DEPTH} deep")


def _decode(decoder: msgspec.json.Decoder[Any], line: Line) -> Any:
    try:
        return decoder.decode(line)
    except msgspec.ValidationError as error:
        sentence, _, place = str(error).replace("`", "").partition(" - at $")
        sentence = escaped(f"{sentence[:1].lower()}{sentence[1:160]}")
        raise InputError(f"{escaped(place[:100].lstrip('.'))}: {sentence}" if place else sentence) from None
    except msgspec.DecodeError as error:
        raise InputError(f"not JSON ({error})") from None
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text") from None
    except RecursionError:
        raise InputError("nested too deeply") from None


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@cache
def _strict(cls: Any) -> type[msgspec.Struct]:
    """A class with the fields of an event class that refuses all others. What older schemas lack has a default."""
    hints = get_type_hints(cls, include_extras=True)
    longest = MAX_TEXTS if cls in (PrefillDone, Finished) else MAX_ITEMS
    members: list[Any] = []
    for f in fields(cls):
        kind = _strict_type(hints[f.name], longest)
        members.append((f.name, kind) if f.default is MISSING else (f.name, kind, f.default))
    tag = cls.__name__ if cls in EVENTS.values() else None
    options: dict[str, Any] = {"tag": tag, "tag_field": tag and "event"}
    return msgspec.defstruct(cls.__name__, members, frozen=True, gc=False, forbid_unknown_fields=True, **options)


def _strict_type(kind: Any, longest: int) -> Any:
    """The same type for the counterpart: inner classes replaced, tuples as lists (quicker to build) of limited length."""
    if is_dataclass(kind):
        return _strict(kind)  # type: ignore[arg-type]
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple:
        item: Any = _strict_type(inner[0], longest)
        return Annotated[list[item], msgspec.Meta(max_length=longest)]
    if origin is None or origin in (Annotated, Literal):
        return kind
    return reduce(or_, (_strict_type(i, longest) for i in inner))
