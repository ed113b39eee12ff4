"""The undocumented parts of Gradio that the page depends on; see also ``guard.GuardedBlocks``.

Review both modules after every new version of Gradio. In Gradio a "session hash" identifies a window. ``Blocks._queue`` is the queue
of calls. ``state_holder`` stores the states and last values of windows.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import gradio as gr
from gradio.components.api_component import Api
from gradio.context import LocalContext

Message = MutableMapping[str, Any]
HEAD = b"<head>"
ARGUMENT = Api  # replaces a control for values passed through the API
READ_IN = "6.31.0"  # version of Gradio in which these parts were last reviewed
PREFIX = "/gradio_api/"
HEARTBEAT = "heartbeat/"  # heartbeat route under the prefix, held open by every window
UPLOAD = "upload"
# Routes that the page does not need, such as routes that serve uploads or record sessions.
CLOSED = ("file=", "file/", "proxy=", "stream/", "deep_link", "monitoring", "run-history", "process_recording", "vibe-")
SECONDS_BETWEEN_POLLS = 0.02  # poll interval of the queue; Gradio's default of 0.001 keeps 5% of a core busy


def event_fields(event: gr.EventData) -> dict[str, Any]:
    return event._data if isinstance(event._data, dict) else {}


@contextmanager
def inside(block: Any) -> Iterator[None]:
    """Context that adds components to a row or column that is already laid out elsewhere.

    Entering a block again would move it here, so its parent is restored.
    """
    parent = block.parent
    with block:
        yield
    block.parent = parent


def leave_out(page: gr.Blocks, hidden: Collection[int]) -> None:
    """Exclude functions from the published API. hidden: their keys in ``page.fns``."""
    for key in hidden:
        page.fns[key].api_visibility = "private"


def set_poll_interval(page: gr.Blocks) -> None:
    """Make Gradio poll its queue every ``SECONDS_BETWEEN_POLLS`` seconds. Call it after ``page.queue()``."""
    page._queue.sleep_when_free = page._queue.progress_update_sleep_when_free = SECONDS_BETWEEN_POLLS


def waiting(concurrency_id: str) -> list[str]:
    """Returns the windows that wait for a call with this concurrency id, in queue order. Outside a call, the list is empty."""
    page = LocalContext.blocks.get()
    line = page._queue.event_queue_per_concurrency_id.get(concurrency_id) if page else None
    return [event.session_hash for event in line.queue] if line else []


def forget(window: str, app: Any) -> None:
    """Drop the data that Gradio stores for a window. Gradio would keep states for an hour, and component values forever."""
    app.state_holder.session_data.pop(window, None)
    app.state_holder.time_last_used.pop(window, None)
    app.get_blocks()._queue.pending_messages_per_session.pop(window, None)


def hidden_when(condition: str) -> str:
    """Returns a JavaScript listener that empties and hides a component if ``condition``, an expression of ``value``, is true."""
    return f"(value) => {condition} ? {{ __type__: 'update', visible: false, value: '' }} : {{ __type__: 'update' }}"


class View(gr.HTML):
    """An element whose script draws the value."""

    def postprocess(self, value: str | None) -> str | None:
        """Returns the value unchanged, without Gradio's check for script tags, since the value is never used as HTML."""
        return value

    def get_block_name(self) -> str:
        """Returns "html", so that Gradio's client treats the component like ``gr.HTML``."""
        return "html"

    def __getattr__(self, name: str) -> Any:
        """Returns the listener of an event that the component's script triggers. The script must contain the event's name in quotes.

        This replaces a slow search: for each of the many attributes that Gradio looks up when it describes a component, it would
        search the whole script. That takes up to 10 ms per window and per update of a property.
        """
        if name in _quoted(self.__dict__.get("js_on_load") or ""):
            return super().__getattr__(name)
        raise AttributeError(
            f"{type(self).__name__} has no attribute {name!r}, and its script has no event of that name"
        )


@lru_cache(maxsize=64)
def _quoted(script: str) -> frozenset[str]:
    return frozenset(re.findall(r"""['"`](\w+)(?=['"`])""", script))


class EarlyHead:
    """ASGI middleware that inserts a script and markup at the start of the head of every HTML page.

    The script runs in a separate scope, before Gradio's scripts. Scripts of ``launch(head=…)`` run only after the page has loaded.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], script: str, markup: str = ""):
        self.app, self.tag = app, f"<script>{{{script}}}</script>{markup}".encode()

    async def __call__(self, scope: Message, receive: Any, send: Callable[[Message], Awaitable[None]]) -> None:
        held: Message | None = None  # start of the response, held until the body's length is known

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
