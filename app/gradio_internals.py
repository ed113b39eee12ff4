"""What the page touches of Gradio that Gradio documents nowhere, all of it here. Read again after every new version.

Gradio's own words for it: a "session hash" names a window, ``Blocks._queue`` is its line of calls, ``state_holder`` keeps the
states and last values of windows.
"""

from __future__ import annotations

import logging
from typing import Any

import gradio as gr
from gradio.context import LocalContext

from app.inputs import control_values, event_data
from d2sd import InputError

log = logging.getLogger(__name__)
READ_IN = "6.31.0"
PREFIX = "/gradio_api/"
HEARTBEAT = "heartbeat/"  # behind the prefix: where a window says, as long as it is open, that it is there
UPLOAD = "upload"
# Gradio serves what was uploaded and writes down whole windows on request; the page needs none of it.
CLOSED = ("file=", "file/", "proxy=", "stream/", "deep_link", "monitoring", "run-history", "process_recording", "vibe-")
SECONDS_BETWEEN_LOOKS = 0.02  # at who waits; Gradio's 0.001 takes 5% of a core, all the time
UNEXPECTED = "Something went wrong here; it was written into the server's log."
MISFIT = "A value does not fit its control, or its file is not here any more; load the page again."


class GuardedBlocks(gr.Blocks):
    """Blocks whose calls are checked before any component or function sees them: a caller gets one sentence."""

    async def preprocess_data(self, block_fn: Any, inputs: Any, state: Any, explicit_call: bool = False) -> Any:
        """The values of a call, checked."""
        try:
            values = control_values(block_fn.inputs, inputs)
        except InputError as error:
            raise _error(f"{error}.") from None
        try:
            return await super().preprocess_data(block_fn, values, state, explicit_call)
        except Exception as error:  # of Gradio's own checks: a choice that is none, a path that no upload has
            log.info("a call was refused: %s", type(error).__name__)
            raise _error(MISFIT) from None

    async def process_api(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Answer a call."""
        if (event := options.get("event_data")) is not None:
            event._data = event_data(event._data)
        try:
            return await super().process_api(*args, **options)
        except gr.Error as error:
            error.print_exception = False
            raise
        except Exception:
            log.exception("a call failed")
            raise _error(UNEXPECTED) from None


def _error(sentence: str) -> gr.Error:
    return gr.Error(sentence, print_exception=False)


def told(event: gr.EventData) -> dict[str, Any]:
    """What a drawn part of the page says with its event."""
    return event._data if isinstance(event._data, dict) else {}


def look_less_often(page: gr.Blocks) -> None:
    """Let the line of calls be looked at every ``SECONDS_BETWEEN_LOOKS``. After ``page.queue()``, which makes the line."""
    page._queue.sleep_when_free = page._queue.progress_update_sleep_when_free = SECONDS_BETWEEN_LOOKS


def waiting(concurrency_id: str) -> list[str]:
    """The windows whose calls wait for those of one concurrency id, in their order; asked within a call."""
    page = LocalContext.blocks.get()
    line = page._queue.event_queue_per_concurrency_id.get(concurrency_id) if page else None
    return [event.session_hash for event in line.queue] if line else []


def forget(window: str, app: Any) -> None:
    """Drop what Gradio keeps of a window: states only after an hour, the last value of every component for good."""
    app.state_holder.session_data.pop(window, None)
    app.state_holder.time_last_used.pop(window, None)
    app.get_blocks()._queue.pending_messages_per_session.pop(window, None)


def hidden_when(condition: str) -> str:
    """A listener in JavaScript that empties and hides a component where a condition, also JavaScript, holds."""
    return f"() => {condition} ? {{ __type__: 'update', visible: false, value: '' }} : {{ __type__: 'update' }}"
