"""The section of Compare that replays A's texts with another drafter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from app import replay
from app.compare import compare
from app.model_choice import build_models
from app.models import Chosen
from app.session import Session
from app.tabs.notice import IN_TURN, Said, ask, line_of, notice_box, stopped
from app.work import TURNS, Ticket, Update
from d2sd import InputError

EXPLANATION = (
    "At temperature 0 a text is the same with every drafter. A's texts are therefore enough to compute the acceptance of "
    "another drafter for the same target, without decoding again: in total, by prompt group and by position."
)


def build_replay(session: gr.State, side: gr.Dropdown) -> None:
    """Lay out the fold and wire it. ``side``: A, whose texts are replayed."""
    ticket, number = gr.State(Ticket()), gr.State(0)
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

    def run(current: Ticket, mine: int, kept: Session, a: str | None, *models: Any) -> Iterator[tuple[Any, Any]]:
        said = Said(current, mine)
        try:
            texts = compare.pick(kept.history, a)
        except InputError as error:
            yield gr.skip(), said(Update(problem=f"{error}"))
            return
        for update in TURNS.taken(current, replay.run(current, mine, texts, Chosen.read(*models))):
            shown = gr.Textbox(update.value, visible=True) if update.value else gr.skip()
            yield shown, said(update)

    requested = go.click(ask, ticket, [number, notice, line_of(notice, ticket)], show_progress="hidden", queue=False)
    requested.then(
        run,
        [ticket, number, session, side, *chosen],
        [found, notice],
        **IN_TURN,
    )
    stop.click(stopped, ticket, notice, show_progress="hidden", queue=False)
