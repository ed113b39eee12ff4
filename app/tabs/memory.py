"""Restores what was typed into a field after a reload; the browser stores it and does not send it anywhere."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

KEEP = """(words) => {
  try {
    sessionStorage.setItem(%s, words);
  } catch { /* storage is switched off or full: the field is not remembered */ }
}"""
# undefined leaves the field as it is
RECALL = """() => {
  try {
    const words = sessionStorage.getItem(%s);
    if (words !== null && [...words].length <= %d) return words;
  } catch { /* storage is switched off */ }
}"""


def remember(box: gr.Textbox, most: int) -> None:
    """Store the content of a text field in the browser and restore it on reload, up to ``most`` characters."""
    name = json.dumps(f"d2sd-{box.elem_id}")
    in_browser: dict[str, Any] = {"show_progress": "hidden", "queue": False}
    # Gradio's input is every key, not what is pasted, cut or deleted
    box.change(None, box, None, js=KEEP % name, **in_browser)
    gr.on(None, None, None, box, js=RECALL % (name, most), **in_browser)
