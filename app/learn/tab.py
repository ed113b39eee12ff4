"""Learn: the idea in nine stops, over a recorded run; ends in Explore."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.gradio_internals import event_fields
from app.learn.view import LearnView, lesson_run
from app.runs.tab import Shown
from app.session import Session


def build_learn(tabs: gr.Tabs, explore: Shown) -> None:
    """Lay out the tab and wire it. ``explore``: where the tour ends."""
    learn = LearnView()

    def open_recorded(current: Session, event: gr.EventData) -> tuple[Any, gr.Tabs]:
        fields = event_fields(event)
        # the step travels with the run: selected earlier, it would be forgotten when the run arrives
        wanted = {"step": fields.get("step"), "node": None}
        return current.show(lesson_run(), "Recorded", wanted=wanted), gr.Tabs(selected="explore")

    opened = learn.select(open_recorded, explore.session, [explore.view, tabs], show_progress="hidden", queue=False)
    explore.after(opened)
