"""Colours and type of the page; the drawing's own colours are in assets/viewer/colours.css."""

from __future__ import annotations

import gradio as gr


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
