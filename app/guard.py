"""Limits for callers of the page: request size, allowed addresses, lifetime of a window's data.

``docs/security.md`` lists the numbers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from app import gradio_internals
from app.gradio_internals import CLOSED, HEARTBEAT, PREFIX, UPLOAD
from app.machine import give_back

log = logging.getLogger(__name__)
MAX_CALL_BYTES = 1 << 20
MAX_UPLOAD_BYTES = 256 << 20  # of one request
SECONDS_KEPT = 120  # after a window is gone: it may be a network that comes back
MAX_WINDOWS = 500

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Guard:
    """ASGI middleware around Gradio's app."""

    def __init__(self, app: Callable[..., Awaitable[None]]):
        self.app = app
        self.open = Counter[str]()  # connections by which windows say that they are there

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer, refuse, or watch a window."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        path = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix(PREFIX).lstrip("/")
        if path.startswith(CLOSED):
            return await _refuse(send, 404, "There is nothing here.")
        if scope["method"] == "POST":
            limit = MAX_UPLOAD_BYTES if path.startswith(UPLOAD) else MAX_CALL_BYTES
            length = dict(scope["headers"]).get(b"content-length", b"0")
            if not length.isdigit() or int(length[:20]) > limit:
                await _drain(receive)
                return await _refuse(send, 413, f"This is too large; at most {limit >> 20} MiB are accepted.")
            receive = _counted(receive, limit)  # a proxy may have left the length out
        if path.startswith(HEARTBEAT):
            return await self._watch(path.split("/")[1], scope, receive, send)
        return await self._try(scope, receive, send)

    async def _try(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle requests that Gradio itself fails on: unknown numbers, or a second stream of a closed window.

        Errors in the page's functions are handled elsewhere.
        """
        began = gone = False

        async def asked() -> Message:
            nonlocal gone
            message = await receive()
            gone = gone or message["type"] == "http.disconnect"
            return message

        async def answered(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            await self.app(scope, asked, answered)
        except Exception as error:
            if gone:
                log.info("an answer broke off after its caller had left: %s", type(error).__name__)
            elif began or scope["method"] != "POST":
                raise
            else:
                log.info("a call was refused: %s", type(error).__name__)
                await _refuse(send, 400, "There is no such call.")

    async def _watch(self, window: str, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a window; a while after its last connection is closed, drop its data."""
        self.open[window] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.open[window] -= 1
            gone = scope.get("app")
            if gone is not None:
                asyncio.get_running_loop().call_later(SECONDS_KEPT, self._let_go, window, gone)

    def _let_go(self, window: str, app: Any) -> None:
        if self.open[window] > 0:
            return
        del self.open[window]
        forget(window, app)


def forget(window: str, app: Any) -> None:
    """Drop what Gradio stores for a window, and return free memory to the system."""
    gradio_internals.forget(window, app)
    give_back()


async def _drain(receive: Receive) -> None:
    """Read a little of a refused request, so that its sender receives the answer."""
    left = 8 * MAX_CALL_BYTES
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            return


def _counted(receive: Receive, limit: int) -> Receive:
    """Returns a ``receive`` that passes on at most ``limit`` bytes."""
    left = limit

    async def counted() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise ValueError("too large")
        return message

    return counted


async def _refuse(send: Send, status: int, sentence: str) -> None:
    body = json.dumps({"detail": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
