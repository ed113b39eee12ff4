"""The sentence under the buttons of a tab: something to check, what is going on, or what is good to know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from app.session import Session
from app.update import TURNS


def notice_box(elem_id: str) -> gr.Textbox:
    """Where ``sentence`` goes."""
    return gr.Textbox(
        visible=False, interactive=False, elem_id=elem_id, elem_classes="notice", lines=2, max_lines=6, label="Notice"
    )


def sentence(problem: str = "", news: str = "", note: str = "") -> gr.Textbox:
    """The box with one of the three; hidden where there is none."""
    return gr.Textbox(
        problem or news or note,
        label="Please check" if problem else "Please wait" if news else "Note",
        elem_classes=["notice", "problem" if problem else "news"],
        visible=bool(problem or news or note),
    )


def forgive(notice: gr.Textbox, changed: Sequence[Any]) -> None:
    """Take a problem back as soon as one of these events tells of a mended value. In the page alone: no server is asked."""
    hide = (
        f"() => document.querySelector('#{notice.elem_id}.problem') "
        "? { __type__: 'update', visible: false } : { __type__: 'update' }"
    )
    gr.on(list(changed), None, None, notice, js=hide, show_progress="hidden", queue=False)


def stopped(session: Session) -> gr.Textbox:
    """Stop what runs or waits, and say so where it had not begun."""
    return sentence(note="Stopped before its turn came: nothing was run." if session.stop() else "")


def ask(session: Session) -> tuple[int, gr.Textbox]:
    """Count a request for work of this window: its number, and a sentence where it has to wait."""
    return session.request(), sentence(news=TURNS.news(session))
