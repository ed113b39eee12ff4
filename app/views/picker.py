"""A list of models to choose from, in which those that cannot run here are shown, but cannot be chosen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.models import ModelOffer
from app.views.view import View

SCRIPT = Path(__file__).resolve().parent.parent / "static" / "picker.js"


class PickerView(View):
    """A native select: ``gr.Dropdown`` and ``gr.Radio`` cannot disable single choices, and a list of theirs stays open when
    one tabs on. The value is the chosen id; names are offered as they are."""

    def __init__(
        self,
        offers: Sequence[ModelOffer | str],
        value: str | None = None,
        *,
        label: str = "Models",
        elem_id: str = "model",
        **options: Any,
    ):
        choices = [
            {"id": o, "label": o, "disabled": False}
            if isinstance(o, str)
            else {"id": o.id, "label": _label(o), "disabled": bool(o.obstacle)}
            for o in offers
        ]
        # in the script, not in a property: what an update says of a tab not opened yet would take its place
        script = f"const choices = {json.dumps(choices)}, title = {json.dumps(label)};\n{SCRIPT.read_text('utf-8')}"
        super().__init__(value, script, elem_id=elem_id, elem_classes="picker", **options)


def _label(offer: ModelOffer) -> str:
    said = offer.obstacle or offer.note
    return f"{offer.label} ({said})" if said else offer.label
