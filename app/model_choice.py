"""The model selector: bundled, published, or a local folder; unavailable ones state the reason."""

from __future__ import annotations

from typing import Any

import gradio as gr

import d2sd
from app import models, presets
from app.plans import planned
from app.views.picker import PickerView
from app.visitors import public, without_paths


def follow_model(model: Any, chat: gr.Checkbox, *blocks: gr.Number) -> None:
    """When the user selects other models, reset the block sizes to the default of their drafters, and enable the chat
    template for offered models that have one.

    This does not apply to models set by a link or by showing a run.
    """

    def follow(chosen: str | None) -> list[Any]:
        template = gr.skip() if chosen == models.FOLDER else models.templated(chosen or "")
        return [template, *(None for _ in blocks)]

    model.picked(follow, model, [chat, *blocks], show_progress="hidden", queue=False)


def model_picker(prefix: str = "") -> PickerView:
    """The list of models; ``prefix`` of its id."""
    return PickerView(models.offers(), presets.first_model(), elem_id=f"{prefix}model")


def build_models(prefix: str = "", picker: PickerView | None = None) -> dict[str, gr.components.Component]:
    """The inputs of ``models.Chosen.read`` by name, wired with each other; ``prefix`` of their ids, ``picker``: where the list of
    models stands elsewhere."""
    model = picker or model_picker(prefix)
    with gr.Group(visible=False, elem_id=f"{prefix}own-models") as own:
        folder = gr.Textbox(
            label="Folder with target/, dflash/ and, if trained, vp/", elem_id=f"{prefix}folder", max_lines=1
        )
        vp = gr.Textbox(label="VP-Drafter folder (optional)", elem_id=f"{prefix}vp", max_lines=1)
        second = gr.Markdown(elem_id=f"{prefix}second-drafter", elem_classes="second-drafter")
        # a text box, since configs are anybody's: their words are shown as they are
        would = gr.Textbox(label="What would run", interactive=False, visible=False, lines=2, elem_id=f"{prefix}plan")

    def describe(chosen: str, place: str | None, given: str | None) -> tuple[gr.Group, gr.Textbox, str, gr.Textbox]:
        bundled = chosen in d2sd.presets()
        shown = gr.Group(visible=not bundled and not public())
        which = without_paths(models.second_drafter(chosen, (given or "").strip()))
        said = planned(chosen, place or "")
        return shown, gr.Textbox(visible=chosen == models.FOLDER), which, gr.Textbox(said, visible=bool(said))

    changed = [model.change, vp.change, folder.blur, folder.submit]
    gr.on(changed, describe, [model, folder, vp], [own, folder, second, would], show_progress="hidden", queue=False)
    return {"model": model, "folder": folder, "vp": vp}
