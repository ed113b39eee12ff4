"""The bar and the drawer of the page (prompt, models, method, settings), Explore's view of a run, and updates when another run is shown.

Race and Calibrate use the same prompt, models and settings, and add their own buttons and fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import gradio as gr

import d2sd
from app import links, models, presets
from app.gradio_internals import View
from app.guard import step_number
from app.jobs import AT_ONCE, EACH, Call, answer, hide_problem_on, notice_box, sentence
from app.links import Link
from app.machine import threads_here
from app.model_choice import (
    build_models,
    download_label,
    follow_block,
    follow_model,
    help_buttons,
    method_picker,
    model_picker,
)
from app.runs.recordings import FILE_TYPES
from app.runs.view import runs_drawing, runs_list
from app.session import Session
from app.settings import SETTINGS, TREE_SETTINGS, default_budget, setting_box, setting_tabs, used_by
from app.view import drawer_button, script_view
from d2sd.config import SETTINGS as ALL
from d2sd.figures.viewer import viewer_script
from d2sd.nets.dtypes import NEAR_TIES, taken_here
from d2sd.trace.run import RecordedRun

METHOD = d2sd.DecodeConfig().method
# Settings that `filled_in` always contains: a number field that was never set shows None as 0.
OPTIONAL = frozenset(s.name for s in SETTINGS if s.optional)
RECENT = 8  # number of filled-in forms to remember: the page may still hold the values of an earlier form
CHOOSE_SIZE = """(size, budget, own) => {
  if (size === "limited") return [false, budget || own];
  return [size === "quickest", size === "full" || budget === own ? null : budget];
}"""
SHOW_SIZE = "(quickest, budget) => (quickest ? 'quickest' : budget ? 'limited' : 'full')"


class Controls(NamedTuple):
    """Components of the form.

    inputs: the components with values for a run, by name.
    bar, buttons: column and row of the bar, to which other tabs add their own parts.
    race, calibrate: columns of the drawer with the fields of these tabs.
    notice: shows sentences about runs in Explore.
    told: shows sentences about the list of runs and the download, in every tab.
    """

    inputs: dict[str, Any]
    bar: gr.Column
    buttons: gr.Row
    race: gr.Column
    calibrate: gr.Column
    run: gr.Button
    stop: gr.Button
    notice: gr.Textbox
    told: gr.Textbox
    upload: gr.UploadButton
    back: gr.Button
    get: gr.Button
    runs: View
    example: gr.Button

    @property
    def values(self) -> list[Any]:
        return list(self.inputs.values())

    def restored(self, link: Link) -> list[Any]:
        """Returns an update of each input: it gets the link's value, if the link has one. Settings that the link's method does not
        use are hidden.
        """
        values = filled_in(link)
        used = used_by(link.values["method"]) if "method" in link.values else None

        def restore(name: str) -> Any:
            changes = {"value": values[name]} if name in values else {}
            if used is not None and name in TREE_SETTINGS:
                changes["elem_classes"] = setting_tabs(name, name in used)
            return gr.update(**changes)

        return [restore(name) for name in self.inputs]


def filled_in(link: Link) -> dict[str, Any]:
    """Returns the values that a link gives to the form.

    A link of a run or race contains all settings that were set. If it has no B, the run or race had no limit on nodes.
    """
    budget = None if link.of_run else default_budget()
    return {**dict.fromkeys(OPTIONAL), "node_budget": budget, **link.values}


def build_controls() -> Controls:
    """Lay out the bar and the drawer, and wire the events between their controls."""
    with gr.Column(elem_id="settings") as bar:
        return _build_bar(bar)


def _build_bar(bar: gr.Column) -> Controls:
    inputs = dict[str, Any]()
    model_at_start = presets.first_model()
    prompt = str(presets.opening().header.get("prompt") or next(iter(presets.examples(model_at_start).values())))
    inputs["prompt"] = gr.Textbox(
        prompt,
        label="Prompt",
        info="Enter runs, Shift+Enter starts a line",
        lines=2,
        max_lines=6,
        elem_id="prompt",
        elem_classes="in-tabs in-explore in-race",
    )
    picker = model_picker()
    with gr.Row(elem_id="buttons") as buttons:
        run, stop = run_buttons("Run", "run", "stop", "explore")
    drawer_button()
    wanted = models.to_get()
    get = gr.Button(download_label(wanted) if wanted else "", visible=bool(wanted), size="sm", elem_id="get")
    examples = [
        _examples(inputs["prompt"], model, model == model_at_start) for model in (presets.BUNDLED, presets.FIRST)
    ]
    notice, told = notice_box("notice"), notice_box("bar-notice")
    with gr.Column(elem_id="drawer"):
        back = gr.Button("Back to my own settings", elem_id="own-settings", size="sm", visible=False)
        race = gr.Column(elem_id="race-fields", elem_classes="in-tabs in-race")
        calibrate = gr.Column(elem_id="calibrate-fields", elem_classes="in-tabs in-calibrate")
        method = method_picker(d2sd.METHODS, METHOD, "method", "explore")
        size = gr.Radio(
            [("B nodes", "limited"), ("Full tree", "full"), ("Quickest here", "quickest")],
            value="limited" if default_budget() else "full",
            show_label=False,
            label="Size of the tree",
            elem_id="cost-aware",
            elem_classes="in-tabs in-explore",
            min_width=60,
        )
        inputs["cost_aware"] = gr.Checkbox(False, label=ALL["cost_aware"].label, visible=False)
        inputs |= build_models(picker)

        def suit(chosen: str) -> list[Any]:
            has_examples = chosen in presets.OWN
            return [gr.Dataset(visible=has_examples), gr.Dataset(visible=not has_examples)]

        inputs["model"].change(suit, inputs["model"], examples, **AT_ONCE)
        inputs["method"] = method
        _method_settings(inputs, method)
        follow_model(inputs["model"], inputs["chat"], inputs["block_size"], inputs["second_block_size"])
        limits, own = [inputs["cost_aware"], inputs["node_budget"]], follow_block(inputs)
        size.input(None, [size, inputs["node_budget"], own], limits, js=CHOOSE_SIZE, **AT_ONCE)
        gr.on([box.change for box in limits], None, limits, size, js=SHOW_SIZE, **AT_ONCE)
        other = presets.second()
        with gr.Row(elem_id="last", elem_classes="in-tabs in-explore"):
            upload = gr.UploadButton(
                "Open a trace", file_types=FILE_TYPES, size="sm", elem_id="open-trace", min_width=100
            )
            label = presets.second_label(other)
            example = gr.Button(label, elem_id="example", size="sm", min_width=100, visible=len(other) > 0)
        runs = runs_list()
    help_buttons(inputs)
    # any change clears the notice, which may be about the previous value
    hide_problem_on(notice, [box.change for box in inputs.values()])
    return Controls(inputs, bar, buttons, race, calibrate, run, stop, notice, told, upload, back, get, runs, example)


def run_buttons(name: str, run: str, stop: str, tab: str) -> tuple[gr.Button, gr.Button]:
    """Returns the main button of a tab, and its Stop."""
    shared: dict[str, Any] = {"elem_classes": f"in-tabs in-{tab}", "min_width": 60}
    return (
        gr.Button(name, variant="primary", elem_id=run, **shared),
        gr.Button("Stop", elem_id=stop, visible=False, **shared),
    )


def _examples(prompt: gr.Textbox, model: str, visible: bool) -> gr.Dataset:
    texts = presets.examples(model)
    return gr.Examples(
        [[text] for text in texts.values()],
        [prompt],
        visible=visible,
        label=f"{model} {presets.TINY}, for example:" if model == presets.BUNDLED else "Examples",
        elem_id=f"examples-{model}",
        example_labels=list(texts),
    ).dataset


def _method_settings(inputs: dict[str, Any], method: gr.Dropdown) -> None:
    info = gr.Markdown(explained(METHOD), elem_id="method-info", elem_classes="in-tabs in-explore")
    with gr.Group(elem_id="numbers-in", elem_classes="small-numbers"):
        for setting in sorted(SETTINGS, key=lambda s: s.kind == "flag"):
            if setting.name not in inputs:
                inputs[setting.name] = setting_box(setting, setting.name in used_by(METHOD))

    with gr.Accordion("Numbers and threads of this machine", open=False, elem_id="meanings"):
        gr.Markdown(f"**Numbers**: {taken_here()} {NEAR_TIES}", elem_id="near-ties")
        gr.Markdown(f"**Threads**: {threads_here()}", elem_id="threads-here")

    of_methods = [s.name for s in SETTINGS if s.name in TREE_SETTINGS]

    def explain(chosen: str) -> list[Any]:
        if chosen not in d2sd.METHODS:  # only programs that call the API send other methods
            return [gr.skip() for _ in range(1 + len(of_methods))]
        used = used_by(chosen)
        return [explained(chosen), *(gr.update(elem_classes=setting_tabs(name, name in used)) for name in of_methods)]

    method.change(explain, method, [info, *(inputs[name] for name in of_methods)], **AT_ONCE)


def explained(method: str) -> str:
    chosen = d2sd.METHODS[method]
    return f"{chosen.sentence} ({chosen.source})"


def explorer_view(value: str | None = None) -> View:
    """Returns the view that draws a run, step by step: linked text, tree, confidence strip and timeline.

    value: a segment of a ``d2sd.trace.run.RecordedRun``: new lines and their position.

    Events and their data:

    * ``select``: a step or node is pinned (``run``, ``step``, ``node``);
    * ``missed``: requests the lines that the page lacks (``key`` of the run, ``start``: index of the first line);
    * ``export``: requests a file that the server makes (``kind``, ``step``);
    * ``redraft``: asks what a re-draft would have added (``key``, ``step``, ``prefix``, ``number`` of the question). The answer is
      the note ``redraft`` of a segment, see ``app.explore.questions``;
    * ``typed``: asks the target to verify the user's own draft (``key``, ``step``, ``words``, ``number``). The
      answer is the note ``typed``;
    * ``replays``: asks for replays of the run with other K and γ (``key``, ``number``). The progress is the note ``replays``; the
      answer is a line of the run. ``halt`` stops them;
    * ``quickest``, ``full``: runs the form's prompt and settings as *quickest here*, or with the full tree (the name: true).
    """
    return script_view(value, viewer_script(), elem_id="explorer", served=True)


RunToOpen = tuple[RecordedRun, str, str]  # the run, its source and its label


def opens_run(find: Callable[..., RunToOpen | None]) -> Callable[..., tuple[Any, Any, Any]]:
    """Returns the answer to a call that opens a run in Explore, at ``step`` and ``node`` of the call's data if they are given.

    The answer has updates of the view, the tabs and the notice. The tab stays the same if the data has a false ``open``.

    find: called with the ``Call``, the ``Session`` and further values; returns the run with its source and its label, or None if
        the view shows the run already.
    """

    @wraps(find)
    def answered(call: Call, session: Session, *values: Any) -> tuple[Any, Any, Any]:
        opened, step = find(call, session, *values), step_number(call.data.get("step"))
        call.check()
        tab = gr.Tabs(selected="explore") if call.data.get("open", True) else gr.skip()
        if opened is None:
            return gr.skip(), tab, gr.skip()
        selection = None if step is None else {"step": step, "node": call.data.get("node")}
        return session.show(*opened, selection), tab, sentence()

    return answered


class ExploreTab(NamedTuple):
    """The parts of the page that change when another run is shown in Explore."""

    session: gr.State
    controls: Controls
    view: View
    runs: View
    tabs: gr.Tabs

    @property
    def outputs(self) -> list[Any]:
        return [*self.controls.values, self.controls.back, self.runs, self.controls.notice]

    def open_on(self, event: Any, answered: Callable[..., Any], notice: gr.Textbox, inputs: Sequence[Any] = ()) -> None:
        """Wire an event that opens a run. ``answered``: result of ``opens_run``."""
        outputs = [self.view, self.tabs]
        self.after(answer(event, answered, self.session, [self.session, *inputs], outputs, notice, **AT_ONCE))

    def after(self, event: Any) -> None:
        """Fill in the settings of the shown run after an event that may show another one."""
        event.then(self.follow, [self.session, *self.controls.values], self.outputs, **EACH)

    def follow(self, session: Session, *values: Any) -> list[Any]:
        """Returns updates of the form, the list of runs and the notice. If another run is shown than before, the form gets its
        settings, and the user's settings are stored.
        """
        listed = runs_drawing(session)
        if session.followed == session.shown.key or not len(session.shown):
            return [*(gr.skip() for _ in values), gr.skip(), listed, gr.skip()]
        session.put_aside(dict(zip(self.controls.inputs, values, strict=True)))
        session.followed = session.shown.key
        link = links.read_link(links.query_fields(session.shown.header))
        session.filled = [*session.filled, filled_in(link)][-RECENT:]
        note = f"Some settings of this run cannot be filled in; the form keeps your values for these: {'; '.join(link.ignored)}."
        return [
            *self.controls.restored(link),
            gr.Button(visible=True),
            listed,
            # not for a server's log: it has none of these settings, and another note is shown
            sentence(note=note) if link.ignored and not session.shown.header.get("missing") else gr.skip(),
        ]

    def own(self, session: Session) -> list[Any]:
        values, session.own = session.own or {}, None
        return [*self.controls.restored(Link(values)), gr.Button(visible=False)]

    def started(self, session: Session) -> tuple[Any, str]:
        """Forget the stored settings when a run starts. Returns updates of the button *Back* and of the list of runs."""
        session.own, session.followed = None, session.shown.key
        return gr.Button(visible=False), runs_drawing(session)
