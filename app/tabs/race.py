"""Race: methods against each other on one prompt, and below it what other settings would have done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

import d2sd
from app import presets, race
from app.models import Chosen
from app.record import DEFAULT, recorded_race
from app.session import Session
from app.tabs.model_choice import build_models
from app.tabs.notice import MODEL, ask, line_of, notice_box, sentence
from app.tabs.setting_box import setting_rows
from app.tabs.whatif import build_whatif, lane_choices
from app.update import TURNS
from app.views.race import RaceView, drawing

CHOSEN = ("model", "folder", "vp")
NAMES = ("block_size", "num_branches", "node_budget", "temperature", "seed", "max_new_tokens", "chat")


def build_race(explore: gr.State) -> None:
    """Lay out the tab and wire it. ``explore`` is the session of Explore, whose run can be asked what-if questions."""
    # Its own session: a run in Explore and a race wait for each other, but do not stop each other.
    session, number = gr.State(Session()), gr.State(0)
    kept = gr.State(None)  # the window's own race; none yet: the recorded one is shown
    opening = recorded_race()
    with gr.Row(elem_classes="beside"):
        with gr.Column(scale=0, min_width=290, elem_classes="settings", elem_id="race-settings"):
            inputs, start, stop, notice = _settings()
        with gr.Column(scale=1, min_width=320):
            lanes = RaceView(drawing(opening) if opening.lanes else None)
            source = build_whatif(explore, kept, [inputs[name] for name in CHOSEN])

    def run(current: Session, mine: int, *values: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
        for update in TURNS.taken(current, race.run(current, mine, *_asked(*values))):
            shown = update.value
            done = shown if shown and not shown.status and shown.lanes else None
            yield (
                drawing(shown) if shown else gr.skip(),
                sentence(update.problem, update.news),
                done or gr.skip(),
                gr.Dropdown(**lane_choices(done)) if done else gr.skip(),
            )

    requested = start.click(
        ask, session, [number, notice, line_of(notice, session)], show_progress="hidden", queue=False
    )
    requested.then(
        run,
        [session, number, *inputs.values()],
        [lanes, notice, kept, source],
        show_progress="hidden",
        concurrency_id=MODEL,
        concurrency_limit=1,
        trigger_mode="multiple",
    )
    stop.click(Session.stop, session, None, show_progress="hidden", queue=False)


def _asked(
    prompt: str, model: str, folder: str, vp: str, methods: list[str], *values: Any
) -> tuple[str, Chosen, list[str], dict[str, Any]]:
    return prompt or "", Chosen.read(model, folder, vp), methods or [], dict(zip(NAMES, values, strict=True))


def _settings() -> tuple[dict[str, Any], gr.Button, gr.Button, gr.Textbox]:
    """The column of controls; ``inputs`` is in the order of ``_asked``'s arguments."""
    inputs = dict[str, Any]()
    inputs["prompt"] = gr.Textbox(
        next(iter(presets.EXAMPLES.values())), label="Prompt", lines=3, max_lines=8, elem_id="race-prompt"
    )
    with gr.Row(elem_classes="buttons"):
        start = gr.Button("Race", variant="primary", elem_id="start-race", min_width=80)
        stop = gr.Button("Stop", elem_id="stop-race", min_width=80)
    notice = notice_box("race-notice")
    inputs |= build_models("race-")
    inputs["methods"] = gr.CheckboxGroup(
        [(f"{m.id}: {m.sentence}", m.id) for m in d2sd.METHODS.values()],
        value=list(DEFAULT),
        label="Methods, run one after the other",
        elem_id="race-methods",
    )
    with gr.Group(elem_id="race-numbers", elem_classes="small-numbers"):
        inputs |= setting_rows(NAMES, 3, "race-")
    # as long as nothing was sent to it, a number field shows None as 0
    gr.on(None, lambda: None, None, inputs["node_budget"], show_progress="hidden", queue=False)
    return inputs, start, stop, notice
