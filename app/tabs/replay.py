"""The section of Compare that replays A's texts with another drafter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from app import compare, replay
from app.jobs import Job, Ticket, Update, notice_box, wire
from app.models import Chosen
from app.page_session import Session
from app.tabs.model_choice import build_models

EXPLANATION = (
    "At temperature 0 a text is the same with every drafter. A's texts are therefore enough to compute the acceptance of "
    "another drafter for the same target, without decoding again: in total, by prompt group and by position."
)


def build_replay(session: gr.State, side: gr.Dropdown) -> None:
    """Lay out the fold and wire it. ``side``: A, whose texts are replayed."""
    with gr.Accordion("A's texts with another drafter", open=False, elem_id="replay"):
        gr.Markdown(EXPLANATION)
        chosen = list(build_models("replay-").values())
        with gr.Row(elem_classes="buttons"):
            go = gr.Button("Replay", elem_id="replay-go", size="sm", min_width=80)
            stop = gr.Button("Stop", elem_id="replay-stop", size="sm", min_width=60)
        notice = notice_box("replay-notice")
        found = gr.Textbox(
            visible=False, interactive=False, lines=4, max_lines=20, label="Both drafters", elem_id="replay-found"
        )

    def run(job: Job, kept: Session, a: str | None, *models: Any) -> Iterator[Update[gr.Textbox]]:
        for update in replay.run(job, compare.pick(kept.history, a), Chosen.read(*models)):
            yield update.map(lambda table: gr.Textbox(table, visible=True))

    wire(go.click, run, gr.State(Ticket()), [session, side, *chosen], [found], notice, stop=stop)
