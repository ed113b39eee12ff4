"""The Explore view: a run, streamed step by step, as linked text, tree, confidence strip and timeline."""

from __future__ import annotations

import gradio as gr

from d2sd.viewer import viewer_script


class ExplorerView(gr.HTML):
    """Draws a run. The value is a segment of an ``app.recording.Recording``: new lines and where they belong.

    Events: ``select`` when a step or node is pinned (``run``, ``step``, ``node``), ``missed`` when lines between those
    that the page has and those that it got are lacking (``key``, ``start``).
    """

    def __init__(self, value: str | None = None, *, elem_id: str = "explorer"):
        # The template is constant: Gradio would run ${...} and {{...}} in a template as code.
        super().__init__(
            value,
            html_template="<div></div>",
            css_template="",
            js_on_load=viewer_script(),
            apply_default_css=False,
            elem_id=elem_id,
        )

    def postprocess(self, value: str | None) -> str | None:
        """The segment as it is. It is never read as HTML: Gradio's check for script tags does not apply."""
        return value

    def get_block_name(self) -> str:
        """The page draws it as any ``gr.HTML``."""
        return "html"
