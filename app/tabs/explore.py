"""Explore: settings on the left, the run on the right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

import d2sd
from app import controller, presets
from app.session import Session
from app.views.explorer import ExplorerView


def build_explore(session: gr.State) -> ExplorerView:
    """Lay out the tab and wire it; ``session`` holds the window's ``Session``. Returns the view of the run."""
    with gr.Row(elem_id="main-row"):
        with gr.Column(scale=0, min_width=290, elem_id="settings"):
            inputs, run, stop, notice = _settings()
        with gr.Column(scale=1, min_width=320):
            view = ExplorerView(presets.opening_trace() or None)

    # A request is counted at once, outside the queue, so that Stop and a second Run also reach runs that wait.
    number = gr.State(0)
    for trigger in (run.click, inputs["prompt"].submit):
        requested = trigger(Session.request, session, number, show_progress="hidden", queue=False)
        requested.then(
            _run,
            [session, number, *inputs.values()],
            [view, notice],
            show_progress="hidden",
            concurrency_id="model",
            concurrency_limit=1,
            trigger_mode="multiple",
        )
    stop.click(Session.stop, session, None, show_progress="hidden", queue=False)
    return view


def _run(session: Session, number: int, *values: Any) -> Iterator[tuple[Any, gr.Textbox]]:
    for lines, sentence in controller.run(session, number, *values):
        yield gr.skip() if lines is None else lines, gr.Textbox(sentence, visible=bool(sentence))


def _settings() -> tuple[dict[str, Any], gr.Button, gr.Button, gr.Textbox]:
    """The column of controls; ``inputs`` is in the order of ``controller.run``'s arguments."""
    names, inputs = d2sd.presets(), dict[str, Any]()
    inputs["prompt"] = gr.Textbox(
        next(iter(presets.EXAMPLES.values())), label="Prompt", lines=4, max_lines=8, elem_id="prompt"
    )
    with gr.Row(elem_id="buttons"):
        run = gr.Button("Run", variant="primary", elem_id="run", min_width=80)
        stop = gr.Button("Stop", elem_id="stop", min_width=80)
    notice = gr.Textbox(label="Please check", visible=False, interactive=False, elem_id="notice", lines=2, max_lines=6)
    gr.Examples(
        [[e] for e in presets.EXAMPLES.values()],
        [inputs["prompt"]],
        label="Examples",
        elem_id="examples",
        example_labels=list(presets.EXAMPLES),
    )
    inputs["model"] = gr.Dropdown(
        names,
        value=names[0] if names else None,
        label="Models" if presets.on_space() else "Models (bundled name or a folder)",
        elem_id="model",
        allow_custom_value=not presets.on_space(),
    )
    inputs["method"] = gr.Dropdown(list(d2sd.METHODS), value="d2sd", label="Method", elem_id="method")
    info = gr.Markdown(_explained("d2sd"), elem_id="method-info")
    with gr.Group(elem_id="numbers-in"):
        with gr.Row():
            inputs["block_size"] = _number(16, "Block size γ", "gamma", precision=0)
            inputs["num_branches"] = _number(4, "Branches K", "branches", precision=0)
        with gr.Row():
            inputs["temperature"] = _number(0, "Temperature", "temperature", step=0.1)
            inputs["top_p"] = _number(1, "Top-p", "top-p", step=0.05)
        with gr.Row():
            inputs["seed"] = _number(0, "Seed", "seed", precision=0)
            inputs["max_new_tokens"] = _number(128, "Max tokens", "max-tokens", precision=0, step=16)
    inputs["compare"] = gr.Checkbox(True, label="Then measure plain decoding", elem_id="compare")

    def explain(method: str) -> tuple[Any, Any, Any]:
        chosen = d2sd.METHODS[method]
        return (
            _explained(method),
            gr.Number(interactive=chosen.first_drafter),
            gr.Number(interactive=chosen.second_drafter != "none"),
        )

    controls = [info, inputs["block_size"], inputs["num_branches"]]
    inputs["method"].change(explain, inputs["method"], controls, show_progress="hidden", queue=False)
    return inputs, run, stop, notice


def _number(value: float, label: str, elem_id: str, **options: Any) -> gr.Number:
    return gr.Number(value, label=label, elem_id=elem_id, min_width=90, **options)


def _explained(method: str) -> str:
    chosen = d2sd.METHODS[method]
    return f"{chosen.sentence} ({chosen.source})"
