"""The page: settings on the left, the run on the right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

import d2sd
from app import controller, presets
from app.session import Session
from app.theme import theme
from app.views.explorer import ExplorerView

STATIC = Path(__file__).parent / "static"
TITLE = (
    "# D²SD Explorer\n"
    "A drafter fills a block at once, a second one re-drafts from where the first will likely be rejected, "
    "the target checks everything as one tree. Watch every step."
)


def launch_options() -> dict[str, Any]:
    """Arguments for ``launch``: theme and style sheet."""
    return {"theme": theme(), "css": (STATIC / "page.css").read_text(encoding="utf-8"), "footer_links": []}


def build() -> gr.Blocks:
    """The page. Models are loaded at the first run, not here."""
    with gr.Blocks(title="D²SD Explorer", analytics_enabled=False) as page:
        session = gr.State(Session())
        gr.Markdown(TITLE, elem_id="title")
        with gr.Tabs(), gr.Tab("Explore", id="explore"), gr.Row(elem_id="main-row"):
            with gr.Column(scale=0, min_width=290, elem_id="settings"):
                inputs, run, stop, notice = _settings()
            with gr.Column(scale=1, min_width=320):
                view = ExplorerView(presets.opening_trace() or None)

        def start(session: Session, *values: Any) -> Any:
            for lines, sentence in controller.run(session, *values):
                shown = gr.Textbox(sentence, visible=bool(sentence))
                yield (gr.skip() if lines is None else lines), shown

        outputs = [view, notice]
        for trigger in (run.click, inputs["prompt"].submit):
            trigger(
                start,
                [session, *inputs.values()],
                outputs,
                show_progress="hidden",
                concurrency_id="model",
                concurrency_limit=1,
                trigger_mode="multiple",
            )
        stop.click(Session.stop, session, None, show_progress="hidden", queue=False)
    return page


def _settings() -> tuple[dict[str, Any], gr.Button, gr.Button, gr.Textbox]:
    """The column of controls, in the order of ``controller.run``'s arguments."""
    inputs: dict[str, Any] = {}
    inputs["prompt"] = gr.Textbox(
        presets.EXAMPLES[0], label="Prompt", lines=3, max_lines=8, elem_id="prompt", submit_btn=False
    )
    with gr.Row():
        run = gr.Button("Run", variant="primary", elem_id="run", min_width=80)
        stop = gr.Button("Stop", elem_id="stop", min_width=80)
    notice = gr.Textbox(label="Please check", visible=False, interactive=False, elem_id="notice", lines=2, max_lines=6)
    gr.Examples(
        [[e] for e in presets.EXAMPLES],
        [inputs["prompt"]],
        label="Examples",
        example_labels=[e if len(e) < 48 else e[:45] + "…" for e in presets.EXAMPLES],
    )
    names = d2sd.presets()
    inputs["model"] = gr.Dropdown(
        names, value=names[0] if names else None, label="Models", elem_id="model",
        allow_custom_value=not presets.on_space(), info=None if presets.on_space() else "bundled name, or a folder with target/, dflash/, vp/",
    )  # fmt: skip
    inputs["method"] = gr.Dropdown(list(d2sd.METHODS), value="d2sd", label="Method", elem_id="method")
    info = gr.Markdown(d2sd.METHODS["d2sd"].sentence, elem_id="method-info")
    inputs["block_size"] = gr.Slider(2, 16, 16, step=1, label="Block size γ (anchor included)", elem_id="gamma")
    inputs["num_branches"] = gr.Slider(1, 15, 4, step=1, label="Branches K", elem_id="branches")
    inputs["temperature"] = gr.Slider(0, 2, 0, step=0.05, label="Temperature (0 = greedy)", elem_id="temperature")
    with gr.Accordion("More", open=False):
        inputs["top_p"] = gr.Slider(0.05, 1, 1, step=0.05, label="Top-p", elem_id="top-p")
        inputs["seed"] = gr.Number(0, label="Seed", precision=0, elem_id="seed")
    inputs["max_new_tokens"] = gr.Slider(8, 512, 128, step=8, label="Max new tokens", elem_id="max-tokens")
    inputs["compare"] = gr.Checkbox(True, label="Measure plain decoding afterwards", elem_id="compare")

    def explain(method: str) -> tuple[Any, Any, Any]:
        chosen = d2sd.METHODS[method]
        return (
            f"{chosen.sentence} ({chosen.source})",
            gr.Slider(interactive=chosen.first_drafter),
            gr.Slider(interactive=chosen.second_drafter != "none"),
        )

    inputs["method"].change(
        explain, inputs["method"], [info, inputs["block_size"], inputs["num_branches"]], show_progress="hidden"
    )
    return inputs, run, stop, notice
