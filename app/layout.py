"""The page: a title and its tabs."""

from __future__ import annotations

from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from app import api, guard, presets
from app.calibrate.tab import build_calibrate
from app.explore.controls import build_controls, opens_run
from app.explore.tab import build_explore
from app.gradio_internals import EarlyHead, set_poll_interval
from app.guard import GuardedBlocks
from app.jobs import AT_ONCE
from app.learn.tab import build_learn
from app.race.tab import build_race
from app.runs.recordings import MAX_MEGABYTES, SECONDS_KEPT
from app.runs.tab import wire_runs
from app.session import Session
from app.settings import meanings
from app.view import ROUTES, STATIC, drawn_view, fonts
from d2sd.figures.modules import join_modules

SECONDS_BETWEEN_CLEANINGS = 600
MAX_WAITING = 200  # queued calls

# early.js applies the stored theme when the page is reloaded
SWITCH_THEME = """() => {
  const dark = document.body.classList.toggle("dark");
  try {
    localStorage.setItem("d2sd-theme", dark ? "dark" : "light");
  } catch { /* storage is disabled: the choice lasts until the page is reloaded */ }
}"""


SHOW_WORDS = "() => document.dispatchEvent(new CustomEvent('explorer:words'))"
SHOW_STORY = "() => document.dispatchEvent(new CustomEvent('explorer:learn', { detail: { chapter: 1 } }))"
TAGLINE = "D²SD drafts twice, then the large model checks once: the same text in fewer passes."


def theme() -> gr.themes.Base:
    """Returns the theme of Gradio's controls: space instead of borders, three font sizes, and a dark main button.

    Only the drawings use colours, which show which model wrote a token.
    """
    ink, paper, sunken = ("#1b2430", "#e8ecf2"), ("#ffffff", "#12161d"), ("#f1f3f7", "#1d232d")
    fields = {
        paper: "body_background_fill background_fill_primary block_background_fill panel_background_fill "
        "block_label_background_fill checkbox_label_background_fill checkbox_label_background_fill_selected "
        "button_primary_text_color",
        ink: "body_text_color link_text_color checkbox_background_color_selected checkbox_border_color_selected "
        "button_primary_background_fill button_secondary_text_color",
        sunken: "input_background_fill color_accent_soft button_secondary_background_fill",
        ("#566274", "#9daabb"): "block_title_text_color block_label_text_color block_info_text_color "
        "body_text_color_subdued",
        ("#dfe4ec", "#2b333f"): "border_color_primary",
        ("#37445a", "#c3cddb"): "button_primary_background_fill_hover",
        ("#e4e8ef", "#2b333f"): "button_secondary_background_fill_hover",
    }
    colours = {
        f"{name}{end}": colour
        for both, names in fields.items()
        for name in names.split()
        for end, colour in zip(("", "_dark"), both, strict=True)
    }
    return gr.themes.Base(
        primary_hue=gr.themes.colors.slate,
        neutral_hue=gr.themes.colors.slate,
        text_size=gr.themes.sizes.Size("12px", "12px", "12px", "14px", "14px", "16px", "20px", name="text_three"),
        font=["Inter", "system-ui", "sans-serif"],
        font_mono=["JetBrains Mono", "Inter", "ui-monospace", "monospace"],
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_sm,
    ).set(
        block_border_width="0px",
        block_shadow="none",
        block_label_text_size="12px",
        block_title_text_size="12px",
        input_border_width="0px",
        block_label_border_width="0px",
        color_accent=ink[0],  # page.css sets the accent of the dark theme
        **colours,
    )


def launch_options() -> dict[str, Any]:
    """Returns the arguments of ``launch``. The run history is off: Gradio would write every update of a run to the browser's
    storage.
    """
    css = "\n".join(path.read_text(encoding="utf-8") for path in sorted(STATIC.glob("*.css")))
    return {
        "theme": theme(),
        "css": css,
        "footer_links": [],
        "run_history": False,
        "max_file_size": f"{MAX_MEGABYTES}mb",
        "state_session_capacity": guard.MAX_WINDOWS,
        "app_kwargs": {
            "middleware": [Middleware(guard.Guard), Middleware(EarlyHead, join_modules(STATIC / "early.js"), fonts())],
            "routes": ROUTES,
        },
    }


def build() -> gr.Blocks:
    """Returns the page. Models are loaded at the first run."""
    with GuardedBlocks(
        title="D²SD Explorer",
        analytics_enabled=False,
        fill_width=True,
        delete_cache=(SECONDS_BETWEEN_CLEANINGS, SECONDS_KEPT),
    ) as page:
        session = gr.State(Session(shown=presets.opening()))
        with gr.Row(elem_id="top"):
            gr.Markdown("# D²SD Explorer", elem_id="title")
            gr.Markdown(TAGLINE, elem_id="tagline")
            show_me = gr.Button("Show me in 2 minutes", elem_id="show-me", size="sm", min_width=60)
            words = gr.Button("Words & keys", elem_id="words", size="sm", min_width=60)
            theme_switch = gr.Button("◐ Theme", elem_id="theme", size="sm", min_width=60)
        # one bar and one drawer for all tabs; style sheets put the bar below the names of the tabs
        controls = build_controls()
        with gr.Tabs() as tabs:
            with gr.Tab("Explore", id="explore"):
                opening = drawn_view(None, "explore/opening.js", constants={"settings": meanings()}, elem_id="opening")
                shown = build_explore(session, controls, tabs)
            with gr.Tab("Race", id="race"):
                race = build_race(shown)
            with gr.Tab("Calibrate", id="calibrate") as tab:
                build_calibrate(tab, shown)
            with gr.Tab("Learn", id="learn"):
                build_learn(shown)
        opening.learn(lambda: gr.Tabs(selected="learn"), None, tabs, **AT_ONCE)
        recorded = opens_run(lambda *_: (presets.second(), "Recorded", ""))
        shown.open_on(controls.example.click, recorded, controls.told)
        show_me.click(None, js=SHOW_STORY, **AT_ONCE)
        words.click(None, js=SHOW_WORDS, **AT_ONCE)
        theme_switch.click(None, js=SWITCH_THEME, **AT_ONCE)
        wire_runs(page, shown, race)
        api.publish(page)
    page.queue(max_size=MAX_WAITING)
    set_poll_interval(page)
    return page
