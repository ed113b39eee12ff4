"""Learn: the idea in eight stops, over a recorded run; ends in Explore."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.session import Session
from app.views.explore import ExplorerView
from app.views.learn import LearnView, lesson_run


def build_learn(tabs: gr.Tabs, session: gr.State, view: ExplorerView) -> None:
    """Lay out the tab and wire it. ``view`` is the view of Explore, where the tour ends; ``session`` is Explore's."""
    learn = LearnView()

    def open_recorded(current: Session, event: gr.EventData) -> tuple[Any, gr.Tabs]:
        asked = event._data if isinstance(event._data, dict) else {}
        # the step travels with the run: selected earlier, it would be forgotten when the run arrives
        wanted = {"step": asked.get("step"), "node": None}
        return current.show(lesson_run(), wanted=wanted), gr.Tabs(selected="explore")

    learn.select(open_recorded, session, [view, tabs], show_progress="hidden", queue=False)
