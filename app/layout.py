"""The page: a title and its tabs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from app import api, guard, presets
from app import view as plotly_js
from app.calibrate.tab import build_calibrate
from app.compare.tab import build_compare
from app.explore.tab import build_explore
from app.gradio_internals import EarlyScript, look_less_often
from app.guard import GuardedBlocks
from app.learn.tab import build_learn
from app.race.tab import build_race
from app.runs import recordings as uploads
from app.runs.tab import Shown, wire_runs
from app.session import Session
from d2sd.figures.modules import join_modules

# Colours and type of the page; the drawing's own colours are in assets/viewer/colours.css.


def theme() -> gr.themes.Base:
    """A calm neutral theme with system fonts (nothing is fetched)."""
    return gr.themes.Base(
        primary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.slate,
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "SFMono-Regular", "Menlo", "monospace"],
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_sm,
    ).set(  # a step darker than usual, so that words on them and in them stand out by 4.5 to 1
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        color_accent="*primary_600",
    )


STATIC = Path(__file__).parent / "static"
SECONDS_BETWEEN_CLEANINGS = 600
MAX_WAITING = 200  # calls that wait for their turn
TITLE = (
    "# D²SD Explorer\n"
    "A drafter fills a block, a second one re-drafts from where it will likely be rejected, "
    "and the target verifies both as one tree. New here?"
)

# early/theme.js finds the choice when the page is loaded again
SWITCH_THEME = """() => {
  const dark = document.body.classList.toggle("dark");
  try {
    localStorage.setItem("d2sd-theme", dark ? "dark" : "light");
  } catch { /* storage is switched off: the choice lasts as long as the page */ }
}"""


def _texts(pattern: str) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(STATIC.glob(pattern)))


def _early() -> str:
    """Scripts that run before the page is built."""
    return "\n".join(f"{join_modules(path)};" for path in sorted((STATIC / "early").glob("*.js")))


def launch_options() -> dict[str, Any]:
    """Arguments for ``launch``. Runs are not kept in the browser: Gradio would write every update of one to its storage."""
    return {
        "theme": theme(),
        "css": _texts("*.css"),
        "footer_links": [],
        "run_history": False,
        "max_file_size": f"{uploads.MAX_MEGABYTES}mb",
        "state_session_capacity": guard.MAX_WINDOWS,
        "app_kwargs": {
            "middleware": [Middleware(guard.Guard), Middleware(EarlyScript, _early())],
            "routes": [plotly_js.ROUTE],
        },
    }


def _wire_example(button: gr.Button, tabs: gr.Tabs, explore: Shown) -> None:
    """Wire the link to the recorded run of another model; the list of runs leads back."""

    def show(current: Session) -> tuple[Any, gr.Tabs]:
        return current.show(presets.second(), "Recorded"), gr.Tabs(selected="explore")

    explore.after(button.click(show, explore.session, [explore.view, tabs], show_progress="hidden", queue=False))


def build() -> gr.Blocks:
    """Returns the page. Models are loaded at the first run, not here."""
    kept = (SECONDS_BETWEEN_CLEANINGS, uploads.SECONDS_KEPT)
    options: dict[str, Any] = {"analytics_enabled": False, "fill_width": True, "delete_cache": kept}
    with GuardedBlocks(title="D²SD Explorer", **options) as page:
        session = gr.State(Session(shown=presets.opening()))
        with gr.Row(elem_id="top"):
            gr.Markdown(TITLE, elem_id="title")
            begin = gr.Button("Begin with Learn", elem_id="begin", size="sm", min_width=60)
            other = presets.second()
            example = gr.Button(
                presets.second_said(other), elem_id="example", size="sm", min_width=60, visible=len(other) > 0
            )
            theme_switch = gr.Button("◐ Theme", elem_id="theme", size="sm", min_width=60)
        with gr.Tabs() as tabs:
            with gr.Tab("Explore", id="explore"):
                shown = build_explore(session)
            with gr.Tab("Race", id="race") as tab:
                race = build_race(tab, tabs, shown)
            with gr.Tab("Compare", id="compare") as tab:
                build_compare(tab, tabs, shown)
            with gr.Tab("Calibrate", id="calibrate") as tab:
                build_calibrate(tab, tabs, shown)
            with gr.Tab("Learn", id="learn"):
                build_learn(tabs, shown)
        begin.click(lambda: gr.Tabs(selected="learn"), None, tabs, show_progress="hidden", queue=False)
        _wire_example(example, tabs, shown)
        theme_switch.click(None, js=SWITCH_THEME, show_progress="hidden", queue=False)
        wire_runs(page, tabs, shown, race)
        api.publish(page)
    page.queue(max_size=MAX_WAITING)
    look_less_often(page)
    return page
