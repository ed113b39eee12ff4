"""Two folds of Compare: the checkpoints of a training run, and a running server, drawn while they go on.

They read a folder of this machine and ask a server from it, so a page with visitors does not have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from app import checkpoints, serving
from app.models import Chosen
from app.tabs.model_choice import build_models
from app.tabs.notice import IN_TURN, Said, ask, line_of, notice_box, sentence, stopped
from app.views.overtime import OverTimeView, drawn
from app.work import TURNS, Ticket
from d2sd.drawing.board import board_panels
from d2sd.drawing.watched import watched_panels

PROMPTS = 20
CHECKPOINTS = (
    "Every drafter that `d2sd train … --keep-every N` kept, replayed over the same held-out texts of the target: α over steps of "
    "training. Texts and figures are kept in the folder, as by `d2sd board`."
)
SERVER = (
    "A running vLLM or SGLang on this machine, by its `/metrics`: α over time, and acceptance by position where it tells it. "
    "Nothing is sent to the model. `d2sd watch --allow-remote` watches other machines."
)


def build_checkpoints() -> None:
    """Lay out the fold of checkpoints and wire it."""
    ticket, number = gr.State(Ticket()), gr.State(0)
    with gr.Accordion("Checkpoints of a training run", open=False, elem_id="checkpoints"):
        gr.Markdown(CHECKPOINTS)
        folder = gr.Textbox(label="Training folder, with step-N in it", elem_id="checkpoints-folder", max_lines=1)
        chosen = list(build_models("checkpoints-").values())
        limit = gr.Number(PROMPTS, label="Prompts", precision=0, minimum=1, maximum=checkpoints.MOST, elem_id="checkpoints-limit")  # fmt: skip
        with gr.Row(elem_classes="buttons"):
            go = gr.Button("Measure", elem_id="checkpoints-go", size="sm", min_width=80)
            stop = gr.Button("Stop", elem_id="checkpoints-stop", size="sm", min_width=60)
        notice = notice_box("checkpoints-notice")
        view = OverTimeView(elem_id="checkpoints-view")

    def run(current: Ticket, mine: int, place: str, count: float | None, *models: Any) -> Iterator[tuple[Any, Any]]:
        said = Said(current, mine)
        updates = checkpoints.run(current, mine, place or "", count, Chosen.read(*models))
        for update in TURNS.taken(current, updates):
            shown = gr.skip()
            if update.value is not None:
                rows, steps, _ = update.value
                shown = drawn(checkpoints.said(update.value), board_panels(rows, steps))
            yield shown, sentence() if update.value is not None and not update.news else said(update)

    requested = go.click(ask, ticket, [number, notice, line_of(notice, ticket)], show_progress="hidden", queue=False)
    requested.then(
        run,
        [ticket, number, folder, limit, *chosen],
        [view, notice],
        **IN_TURN,
    )
    stop.click(stopped, ticket, notice, show_progress="hidden", queue=False)


def build_server() -> None:
    """Lay out the fold of a running server and wire it."""
    ticket, number = gr.State(Ticket()), gr.State(0)
    with gr.Accordion("A running server", open=False, elem_id="watch"):
        gr.Markdown(SERVER)
        with gr.Row():
            address = gr.Textbox(label="Server", placeholder="http://127.0.0.1:8000", elem_id="watch-server", max_lines=1, scale=3)  # fmt: skip
            every = gr.Number(10, label="Seconds between readings", minimum=serving.LEAST, maximum=serving.LONGEST, elem_id="watch-every", scale=1, min_width=150)  # fmt: skip
        with gr.Row(elem_classes="buttons"):
            go = gr.Button("Watch", elem_id="watch-go", size="sm", min_width=80)
            stop = gr.Button("Stop", elem_id="watch-stop", size="sm", min_width=60)
        notice = notice_box("watch-notice")
        view = OverTimeView(elem_id="watch-view")

    def run(current: Ticket, mine: int, place: str, seconds: float | None) -> Iterator[tuple[Any, Any]]:
        said = Said(current, mine)
        for update in serving.run(current, mine, place or "", seconds):
            found = update.value
            shown = gr.skip() if found is None else drawn(found.last, watched_panels(found.times, found.readings))
            yield shown, said(update)

    def request(current: Ticket) -> int:
        return current.request()

    requested = go.click(request, ticket, number, show_progress="hidden", queue=False)
    requested.then(
        run,
        [ticket, number, address, every],
        [view, notice],
        show_progress="hidden",
        concurrency_limit=4,
        trigger_mode="multiple",
    )
    stop.click(stopped, ticket, notice, show_progress="hidden", queue=False)
