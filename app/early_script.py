"""Scripts that must run before Gradio's own; those of ``launch(head=…)`` run only after the page has loaded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
HEAD = b"<head>"


class EarlyScript:
    """ASGI middleware that inserts a script first into the head of every HTML page, in a scope of its own."""

    def __init__(self, app: Callable[..., Awaitable[None]], script: str):
        self.app, self.tag = app, f"<script>{{{script}}}</script>".encode()

    async def __call__(self, scope: Message, receive: Any, send: Callable[[Message], Awaitable[None]]) -> None:
        """Answer as before, with the script inserted."""
        held: Message | None = None  # its length is known with the first part of the page

        async def answer(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start":
                if dict(message["headers"]).get(b"content-type", b"").startswith(b"text/html"):
                    held = message
                    return
            elif held is not None:
                start, held, body = held, None, message.get("body", b"")
                message = {**message, "body": body.replace(HEAD, HEAD + self.tag, 1)}
                grown = len(message["body"]) - len(body)
                sizes = [
                    (n, str(int(v) + grown).encode() if n == b"content-length" else v) for n, v in start["headers"]
                ]
                await send({**start, "headers": sizes})
            await send(message)

        await self.app(scope, receive, answer)
