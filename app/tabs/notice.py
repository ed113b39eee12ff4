"""The sentence under the buttons of a tab: something to check, or what is going on."""

from __future__ import annotations

import gradio as gr


def notice_box(elem_id: str) -> gr.Textbox:
    """Where ``sentence`` goes."""
    return gr.Textbox(
        visible=False, interactive=False, elem_id=elem_id, elem_classes="notice", lines=2, max_lines=6, label="Notice"
    )


def sentence(problem: str = "", news: str = "") -> gr.Textbox:
    """The box with one of the two; hidden where there is neither."""
    return gr.Textbox(
        problem or news,
        label="Please check" if problem else "Please wait",
        elem_classes=["notice", "problem" if problem else "news"],
        visible=bool(problem or news),
    )
