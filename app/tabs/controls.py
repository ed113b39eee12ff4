"""The column of controls of Explore: what to run, with which models and settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

import d2sd
from app import models, presets
from app.controller import Asked
from app.links import Link
from app.settings import OF_METHODS, SETTINGS, Setting, used_by
from app.views.fold import FoldView
from app.views.picker import PickerView

METHOD = d2sd.DecodeConfig().method


@dataclass(frozen=True, slots=True)
class Controls:
    """The components. ``inputs`` are those that a run depends on, by name."""

    inputs: dict[str, Any]
    run: gr.Button
    stop: gr.Button
    notice: gr.Textbox
    upload: gr.UploadButton

    @property
    def values(self) -> list[Any]:
        """The inputs in the order in which ``asked`` takes their values."""
        return list(self.inputs.values())

    def asked(self, *values: Any) -> Asked:
        """What the values of the inputs ask for."""
        by_name = dict(zip(self.inputs, values, strict=True))
        own = by_name["model"] == models.FOLDER
        return Asked(
            prompt=by_name["prompt"] or "",
            model=(by_name["folder"] or "").strip() if own else by_name["model"] or "",
            vp=(by_name["vp"] or "").strip(),
            method=by_name["method"] or "",
            compare=bool(by_name["compare"]),
            settings={s.name: by_name[s.name] for s in SETTINGS},
        )

    def restored(self, link: Link) -> list[Any]:
        """The inputs as a link sets them, those that it leaves open untouched."""
        optional = {s.name for s in SETTINGS if s.optional}
        used = used_by(link.values["method"]) if "method" in link.values else None

        def restore(name: str) -> Any:
            changes = {"value": link.values[name]} if name in link.values else {}
            if name in optional and not changes:
                changes["value"] = None  # as long as nothing was sent to it, a number field shows None as 0
            if used is not None and name in OF_METHODS:
                changes["interactive"] = name in used
            # a bare value where that is all: custom components take no other changes
            return changes.get("value", gr.skip()) if "interactive" not in changes else gr.update(**changes)

        return [restore(name) for name in self.inputs]


def build_controls() -> Controls:
    """Lay out the column and wire what concerns it alone."""
    inputs = dict[str, Any]()
    inputs["prompt"] = gr.Textbox(
        next(iter(presets.EXAMPLES.values())), label="Prompt", lines=3, max_lines=8, elem_id="prompt"
    )
    with gr.Row(elem_id="buttons"):
        run = gr.Button("Run", variant="primary", elem_id="run", min_width=80)
        stop = gr.Button("Stop", elem_id="stop", min_width=80)
    notice = gr.Textbox(label="Please check", visible=False, interactive=False, elem_id="notice", lines=1, max_lines=6)
    FoldView("Examples, models, method, settings", "more", elem_id="fold")
    with gr.Column(elem_id="more"):
        gr.Examples(
            [[e] for e in presets.EXAMPLES.values()],
            [inputs["prompt"]],
            label="Examples",
            elem_id="examples",
            example_labels=list(presets.EXAMPLES),
        )
        _models(inputs)
        _method(inputs)
        with gr.Row(elem_id="last"):
            inputs["compare"] = gr.Checkbox(True, label="Measure speedup", elem_id="compare", min_width=120)
            upload = gr.UploadButton(
                "Open a trace", file_types=[".jsonl", ".gz"], size="sm", elem_id="open-trace", min_width=100
            )
    return Controls(inputs, run, stop, notice, upload)


def _models(inputs: dict[str, Any]) -> None:
    offers = models.offers()
    first = next((o.id for o in offers if o.obstacle is None), None)
    inputs["model"] = model = PickerView(offers, first)
    own = gr.Group(visible=False, elem_id="own-models")
    with own:
        inputs["folder"] = folder = gr.Textbox(
            label="Folder with target/, dflash/ and, if trained, vp/", elem_id="folder", max_lines=1
        )
        inputs["vp"] = vp = gr.Textbox(label="VP-Drafter folder (optional)", elem_id="vp", max_lines=1)
        second = gr.Markdown(elem_id="second-drafter")

    def describe(chosen: str, given: str) -> tuple[Any, Any, str]:
        bundled = chosen in d2sd.presets()
        shown = gr.Group(visible=not bundled and not models.on_space())
        return shown, gr.Textbox(visible=chosen == models.FOLDER), models.second_drafter(chosen, given.strip())

    changed = [model.change, vp.change]
    gr.on(changed, describe, [model, vp], [own, folder, second], show_progress="hidden", queue=False)


def _method(inputs: dict[str, Any]) -> None:
    inputs["method"] = method = gr.Dropdown(list(d2sd.METHODS), value=METHOD, label="Method", elem_id="method")
    info = gr.Markdown(explained(METHOD), elem_id="method-info")
    with gr.Group(elem_id="numbers-in"):
        numbers = [s for s in SETTINGS if s.kind != "flag"]
        for at in range(0, len(numbers), 3):
            with gr.Row():
                for setting in numbers[at : at + 3]:
                    inputs[setting.name] = _number(setting)
        for flag in (s for s in SETTINGS if s.kind == "flag"):
            inputs[flag.name] = gr.Checkbox(bool(flag.value), label=flag.label, elem_id=flag.elem_id)

    of_methods = [s.name for s in SETTINGS if s.name in OF_METHODS]

    def explain(chosen: str) -> list[Any]:
        used = used_by(chosen)
        return [explained(chosen), *(gr.update(interactive=name in used) for name in of_methods)]

    method.change(explain, method, [info, *(inputs[name] for name in of_methods)], show_progress="hidden", queue=False)


def _number(setting: Setting) -> gr.Number:
    return gr.Number(
        setting.value,
        label=setting.label[:1].upper() + setting.label[1:],
        elem_id=setting.elem_id,
        step=setting.step,
        precision=0 if setting.kind == "whole" and not setting.optional else None,
        placeholder="auto" if setting.optional else None,
        min_width=60,
        interactive=setting.name in used_by(METHOD),
    )


def explained(method: str) -> str:
    """What a method does and where it comes from, in a sentence."""
    chosen = d2sd.METHODS[method]
    return f"{chosen.sentence} ({chosen.source})"
