"""The page: a title and its tabs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from app.session import Session
from app.tabs.explore import build_explore
from app.tabs.race import build_race
from app.theme import theme

STATIC = Path(__file__).parent / "static"
TITLE = (
    "# D²SD Explorer\n"
    "A drafter fills a block at once, a second one re-drafts from where the first will likely be rejected, "
    "the target checks everything as one tree. Watch every step."
)


def launch_options() -> dict[str, Any]:
    """Arguments for ``launch``: theme and style sheets."""
    css = "\n".join(path.read_text(encoding="utf-8") for path in sorted(STATIC.glob("*.css")))
    return {"theme": theme(), "css": css, "footer_links": []}


def build() -> gr.Blocks:
    """The page. Models are loaded at the first run, not here."""
    with gr.Blocks(title="D²SD Explorer", analytics_enabled=False, fill_width=True) as page:
        session = gr.State(Session())
        gr.Markdown(TITLE, elem_id="title")
        with gr.Tabs():
            with gr.Tab("Explore", id="explore"):
                view = build_explore(session)
            with gr.Tab("Race", id="race"):
                build_race(view)
    return page
