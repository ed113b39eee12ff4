"""The control of one setting of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from app.models import templated
from app.presets import first_model
from app.settings import SETTINGS, element
from d2sd.config import Setting


def setting_box(setting: Setting, prefix: str = "", **options: Any) -> gr.Number | gr.Checkbox | gr.Dropdown:
    """A number field, a checkbox or a list; ``prefix`` of its id, ``options`` of what is no checkbox."""
    name = f"{prefix}{element(setting)}"
    if setting.kind == "flag":
        chat = setting.name == "chat" and templated(first_model())
        return gr.Checkbox(bool(setting.default) or chat, label=setting.label, elem_id=name, min_width=60)
    label = setting.label[:1].upper() + setting.label[1:]
    if setting.kind == "choice":
        return gr.Dropdown(
            list(setting.choices),
            value=setting.default,
            label=label,
            elem_id=name,
            filterable=False,
            min_width=60,
            **options,
        )
    return gr.Number(
        setting.default,
        label=label,
        elem_id=name,
        step=setting.step,
        placeholder="auto" if setting.optional else None,
        min_width=60,
        **options,
    )


def setting_rows(names: Sequence[str], width: int, prefix: str) -> dict[str, Any]:
    """Controls of these settings by name, laid out in rows of ``width``."""
    by_name, boxes = {s.name: s for s in SETTINGS}, dict[str, Any]()
    for at in range(0, len(names), width):
        with gr.Row():
            boxes |= {name: setting_box(by_name[name], prefix) for name in names[at : at + width]}
    # as long as nothing was sent to it, a number field shows None as 0
    for box in (box for name, box in boxes.items() if by_name[name].optional):
        gr.on(None, lambda: None, None, box, show_progress="hidden", queue=False)
    return boxes
