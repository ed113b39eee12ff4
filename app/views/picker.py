"""A selector for models, with unavailable ones disabled, or for methods in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.models import ModelOffer
from app.view import View
from app.views.drawn import STATIC
from d2sd.figures.modules import view_script


class PickerView(View):
    """A native select: ``gr.Dropdown`` and ``gr.Radio`` cannot disable single choices, and a list of theirs stays open when
    one tabs on. The value is the chosen id. ``offers``: models, or by the title of a group what is called what, by id."""

    def __init__(
        self,
        offers: Sequence[ModelOffer] | Mapping[str, Mapping[str, str]],
        value: str | None = None,
        *,
        label: str = "Models",
        elem_id: str = "model",
        **options: Any,
    ):
        choices = (
            [_choice(id, label, title) for title, group in offers.items() for id, label in group.items()]
            if isinstance(offers, Mapping)
            else [_choice(o.id, _label(o), disabled=bool(o.obstacle)) for o in offers]
        )
        # in the script, not in a property: what an update says of a tab not opened yet would take its place
        script = view_script(STATIC / "picker.js", {}, {"choices": choices, "title": label})
        super().__init__(value, script, elem_id=elem_id, elem_classes="picker", **options)


def _choice(id: str, label: str, group: str = "", disabled: bool = False) -> dict[str, str | bool]:
    return {"id": id, "label": label, "group": group, "disabled": disabled}


def _label(offer: ModelOffer) -> str:
    said = offer.obstacle or offer.note
    return f"{offer.label} ({said})" if said else offer.label
