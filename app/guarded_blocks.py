"""The page as Gradio ``Blocks`` with two undocumented methods overridden."""

from __future__ import annotations

import logging
from typing import Any

import gradio as gr

from app.inputs import control_values, event_data
from d2sd import InputError

log = logging.getLogger(__name__)
UNEXPECTED = "Something went wrong; the error is in the server's log."
MISFIT = "A value is not valid for its control, or its file no longer exists; reload the page."


class GuardedBlocks(gr.Blocks):
    """Blocks that validate calls before any component or function sees them; errors are one sentence."""

    async def preprocess_data(self, block_fn: Any, inputs: Any, state: Any, explicit_call: bool = False) -> Any:
        """Returns the validated values of a call."""
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
