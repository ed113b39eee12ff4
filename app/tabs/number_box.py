"""A number field for a setting of a run."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.settings import Setting


def number_box(setting: Setting, prefix: str = "", **options: Any) -> gr.Number:
    """The field; ``prefix`` of its id, ``options`` of ``gr.Number``."""
    return gr.Number(
        setting.value,
        label=setting.label[:1].upper() + setting.label[1:],
        elem_id=f"{prefix}{setting.elem_id}",
        step=setting.step,
        precision=0 if setting.kind == "whole" and not setting.optional else None,
        placeholder="auto" if setting.optional else None,
        min_width=60,
        **options,
    )
