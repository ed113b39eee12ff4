"""Limits for callers of the page: request size, allowed addresses, lifetime of a window's data, values of controls.

``docs/security.md`` lists the numbers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from math import isfinite
from typing import Any

import gradio as gr
from starlette.responses import JSONResponse

from app import gradio_internals
from app.gradio_internals import ARGUMENT, CLOSED, HEARTBEAT, PREFIX, UPLOAD
from app.machine import release_memory
from app.visitors import without_paths
from d2sd.errors import InputError, require
from d2sd.trace.text import encodable

log = logging.getLogger(__name__)
MAX_CALL_BYTES = 1 << 20
MAX_UPLOAD_BYTES = 256 << 20  # per request
SECONDS_KEPT = 120  # lifetime of a disconnected window's data, since the connection may come back
MAX_WINDOWS = 500
MAX_CHARACTERS = 200_000
MAX_CHOICES = 64
MAX_FILES = 200
MAX_PATH = 4096
MAX_NUMBER = 2**63
MAX_EVENT_ITEMS = 1000
MAX_EVENT_DEPTH = 4
_FILE = {"_type": "gradio.FileData"}
UNEXPECTED = "Something went wrong; the error is in the server's log."
TOO_LARGE = "The request is too large; at most {} MiB are accepted."
MISFIT = "A value is not valid for its control, or an uploaded file no longer exists; reload the page."

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Guard:
    """ASGI middleware around Gradio's app: refuses large and invalid requests, and drops the data of closed windows.

    later: schedules a call, given seconds, function and arguments; by default, the event loop's ``call_later``.
    """

    def __init__(
        self, app: Callable[..., Awaitable[None]], later: Callable[..., asyncio.TimerHandle] | None = None
    ) -> None:
        self.app, self._later = app, later
        self.open = Counter[str]()  # number of open heartbeat connections by window
        self.leaving: dict[str, asyncio.TimerHandle] = {}  # timers of windows that closed their last connection

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request to Gradio, refuse it, or serve a heartbeat."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        path = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix(PREFIX).lstrip("/")
        limit = MAX_UPLOAD_BYTES if path.startswith(UPLOAD) else MAX_CALL_BYTES
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if path.startswith(CLOSED):
            return await _refuse(scope, receive, send, 404, "Not found.")
        if not length.isdigit() or int(length[:20]) > limit:
            await _drain(receive)
            return await _refuse(scope, receive, send, 413, TOO_LARGE.format(limit >> 20))
        if path.startswith(HEARTBEAT):
            return await self._watch(path.split("/")[1], scope, receive, send)
        return await self._try(scope, receive, send, limit)

    async def _try(self, scope: Message, receive: Receive, send: Send, limit: int) -> None:
        """Pass a request to Gradio, and refuse it if its body is too large or Gradio fails.

        Gradio fails, for example, on unknown function numbers, or on a second stream of a closed window. Errors in the page's
        functions do not arrive here: ``GuardedBlocks`` handles them.
        """
        began = gone = more = False
        left = limit  # bytes of the body that may still follow; counted, since the length in the header may be missing or wrong

        async def receive_part() -> Message:
            nonlocal gone, more, left
            message = await receive()
            gone = gone or message["type"] == "http.disconnect"
            more = bool(message.get("more_body"))
            left -= len(message.get("body", b""))
            if left < 0:
                raise ValueError("too large")
            return message

        async def send_part(message: Message) -> None:
            nonlocal began
            if left >= 0:  # an answer to a truncated body is dropped
                began = True
                await send(message)

        failure = None
        try:
            await self.app(scope, receive_part, send_part)
        except Exception as error:
            failure = error
        if left < 0 and not began:
            if more:
                await _drain(receive)
            await _refuse(scope, receive, send, 413, TOO_LARGE.format(limit >> 20))
        elif failure and gone:
            log.info("a response was aborted after its caller had left: %s", type(failure).__name__)
        elif failure and (began or scope["method"] != "POST"):
            raise failure
        elif failure:
            log.info("a call was refused: %s", type(failure).__name__)
            await _refuse(scope, receive, send, 400, "Unknown call.")

    async def _watch(self, window: str, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a heartbeat. ``SECONDS_KEPT`` after a window's last connection is closed, drop the window's data."""
        self.open[window] += 1
        if (leaving := self.leaving.pop(window, None)) is not None:
            leaving.cancel()
        try:
            await self.app(scope, receive, send)
        finally:
            self.open[window] -= 1
            gone = scope.get("app")
            if gone is not None and not self.open[window]:
                later = self._later or asyncio.get_running_loop().call_later
                self.leaving[window] = later(SECONDS_KEPT, self._let_go, window, gone)

    def _let_go(self, window: str, app: Any) -> None:
        del self.open[window], self.leaving[window]
        forget(window, app)


def forget(window: str, app: Any) -> None:
    gradio_internals.forget(window, app)
    release_memory()


async def _drain(receive: Receive) -> None:
    """Read part of a refused request, so that its sender receives the answer."""
    left = 8 * MAX_CALL_BYTES
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            return


async def _refuse(scope: Message, receive: Receive, send: Send, status: int, sentence: str) -> None:
    await JSONResponse({"detail": sentence}, status, {"connection": "close"})(scope, receive, send)


def control_values(controls: Sequence[Any], values: Any) -> list[Any]:
    """Returns one checked value for each control. Server-side state is never taken from the request.

    Raises ``InputError`` for invalid values.
    """
    require(
        isinstance(values, list) and len(values) == len(controls),
        f"{len(controls)} values are needed, one for each control",
    )
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
    """Returns the data of an event from a custom component, or None if it is large or not plain JSON."""
    left = MAX_EVENT_ITEMS

    def plain(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        require(left >= 0 and depth <= MAX_EVENT_DEPTH, "the event holds too much data")
        if isinstance(value, dict):
            return {_text(k): plain(v, depth + 1) for k, v in value.items()}
        if isinstance(value, list):
            return [plain(v, depth + 1) for v in value]
        return value if value is None else _argument(value)

    try:
        return plain(value, 0)
    except InputError:
        return None


def step_number(value: Any) -> int | None:
    """Returns the number of a step, from 0, that an event contains; None if it is invalid."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: Any) -> str:
    require(isinstance(value, str), "it must be text")
    require(len(value) <= MAX_CHARACTERS, f"it has {len(value)} characters; at most {MAX_CHARACTERS} are accepted")
    return encodable(value)


def _number(value: Any) -> float | int:
    require(isinstance(value, int | float) and not isinstance(value, bool), "it must be a number")
    require(-MAX_NUMBER < value < MAX_NUMBER and isfinite(value), "it must be a number below 2⁶³")
    return value


def _flag(value: Any) -> bool:
    require(isinstance(value, bool), "it must be true or false")
    return value


def _choice(value: Any) -> bool | str:
    return value if isinstance(value, bool) else _text(value)


def _choices(value: Any) -> list[str]:
    require(
        isinstance(value, list) and len(value) <= MAX_CHOICES, f"it must be a list of at most {MAX_CHOICES} choices"
    )
    return [_text(v) for v in value]


def _argument(value: Any) -> Any:
    """Returns an API argument: one plain value, or a list of strings."""
    if isinstance(value, list):
        return _choices(value)
    return _choice(value) if isinstance(value, bool | str) else _number(value)


def _files(value: Any) -> Any:
    if isinstance(value, list):
        require(len(value) <= MAX_FILES, f"{len(value)} files were chosen; at most {MAX_FILES} are accepted at once")
        return [_file(v) for v in value]
    return _file(value)


def _file(value: Any) -> dict[str, Any]:
    """Returns the data of an uploaded file. URLs are refused; Gradio checks that the path is in its upload folder."""
    path: Any = value.get("path") if isinstance(value, dict) else None
    uploaded = isinstance(path, str) and len(path) <= MAX_PATH and "\0" not in path
    require(uploaded and (path.startswith("/") or ":\\" in path), "choose the file again; it was not uploaded here")
    name = value.get("orig_name")
    return {"path": _text(path), "orig_name": _text(name)[-255:] if isinstance(name, str) else None, "meta": _FILE}


_READ = {
    ARGUMENT: _argument,
    gr.Number: _number,
    gr.Slider: _number,
    gr.Dataset: _number,
    gr.Checkbox: _flag,
    gr.CheckboxGroup: _choices,
    gr.Radio: _choice,
    gr.File: _files,
    gr.UploadButton: _files,
}


class GuardedBlocks(gr.Blocks):
    """Blocks that validate calls before any component or function receives them, and report an error as one sentence.

    Both methods override undocumented methods of Gradio.
    """

    async def preprocess_data(self, block_fn: Any, inputs: Any, state: Any, explicit_call: bool = False) -> Any:
        """Returns the validated values of a call."""
        values = control_values(block_fn.inputs, inputs)
        try:
            return await super().preprocess_data(block_fn, values, state, explicit_call)
        except Exception as error:  # from Gradio's own checks, such as an unknown choice or a path without an upload
            log.info("a call was refused: %s", type(error).__name__)
            raise gr.Error(MISFIT) from None

    async def process_api(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Answer a call."""
        if (event := options.get("event_data")) is not None:
            event._data = event_data(event._data)
        try:
            return await super().process_api(*args, **options)
        except InputError as error:
            sentence = f"{without_paths(str(error))}."
        except gr.Error as error:
            sentence = error.message
        except Exception:
            log.exception("a call failed")
            sentence = UNEXPECTED
        raise gr.Error(sentence, print_exception=False) from None
