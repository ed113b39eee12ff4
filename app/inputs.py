"""Validation of the values that callers send for controls. The page sends valid ones, but any caller can send anything. Each
value is converted to the type of its control, or refused with an ``InputError``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import gradio as gr

from app.gradio_internals import ARGUMENT
from d2sd import InputError

MAX_CHARACTERS = 200_000
MAX_CHOICES = 64
MAX_FILES = 200
MAX_PATH = 4096
MAX_NUMBER = 2**63
MAX_EVENT_ITEMS = 1000
MAX_EVENT_DEPTH = 4
_FILE = {"_type": "gradio.FileData"}


def control_values(controls: Sequence[Any], values: Any) -> list[Any]:
    """Returns one value for each control; server-side state is never taken from the request."""
    if not isinstance(values, list) or len(values) != len(controls):
        raise InputError(f"{len(controls)} values are needed, one for each control")
    return [None if c.stateful else control_value(c, v) for c, v in zip(controls, values, strict=True)]


def control_value(control: Any, value: Any) -> Any:
    """Returns the value, or raises an ``InputError`` that names the control."""
    read = next((r for kind, r in _READ.items() if isinstance(control, kind)), _text)
    if isinstance(control, gr.Dropdown) and control.multiselect:
        read = _choices
    try:
        return None if value is None and not isinstance(control, gr.Dataset) else read(value)
    except InputError as error:
        name = getattr(control, "label", None) or getattr(control, "elem_id", None) or "a value"
        raise InputError(f"{name}: {error}") from None


def event_data(value: Any) -> Any:
    """Returns the data of an event from a custom component if it is small and plain, or None."""
    left = MAX_EVENT_ITEMS

    def plain(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > MAX_EVENT_DEPTH:
            raise InputError("the event holds too much data")
        if isinstance(value, dict):
            return {_text(k): plain(v, depth + 1) for k, v in value.items()}
        if isinstance(value, list):
            return [plain(v, depth + 1) for v in value]
        if isinstance(value, str):
            return _text(value)
        return value if value is None or isinstance(value, bool) else _number(value)

    try:
        return plain(value, 0)
    except InputError:
        return None


def step_number(value: Any) -> int | None:
    """Returns the step that an event names, from 0, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InputError("it must be a text")
    if len(value) > MAX_CHARACTERS:
        raise InputError(f"it has {len(value)} characters; at most {MAX_CHARACTERS} are read")
    return value.encode("utf-8", "replace").decode()  # JSON may hold half a character


def _number(value: Any) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("it must be a number")
    if not -MAX_NUMBER < value < MAX_NUMBER or not isfinite(value):
        raise InputError("it must be a number below 2⁶³")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError("it must be true or false")
    return value


def _choices(value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) > MAX_CHOICES:
        raise InputError(f"it must be a list of at most {MAX_CHOICES} choices")
    return [_text(v) for v in value]


def _argument(value: Any) -> Any:
    """Returns an API argument: one plain value, or a list of strings."""
    if isinstance(value, list):
        return _choices(value)
    return value if isinstance(value, bool) else _text(value) if isinstance(value, str) else _number(value)


def _files(value: Any) -> Any:
    if isinstance(value, list):
        if len(value) > MAX_FILES:
            raise InputError(f"{len(value)} files were chosen; at most {MAX_FILES} are read at once")
        return [_file(v) for v in value]
    return _file(value)


def _file(value: Any) -> dict[str, Any]:
    """Returns the path of an upload within Gradio's own folder. URLs are never fetched."""
    path = value.get("path") if isinstance(value, dict) else None
    if (
        not isinstance(path, str)
        or (not path.startswith("/") and ":\\" not in path)
        or len(path) > MAX_PATH
        or "\0" in path
    ):
        raise InputError("choose the file again; it was not uploaded here")
    name = value.get("orig_name")
    return {"path": _text(path), "orig_name": _text(name)[-255:] if isinstance(name, str) else None, "meta": _FILE}


_READ: dict[Any, Callable[[Any], Any]] = {
    ARGUMENT: _argument,
    gr.Number: _number,
    gr.Slider: _number,
    gr.Dataset: _number,
    gr.Checkbox: _flag,
    gr.CheckboxGroup: _choices,
    gr.Radio: _text,
    gr.File: _files,
    gr.UploadButton: _files,
}
