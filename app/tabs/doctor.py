"""“Why is it rejected?”: a button of Calibrate, and the doctor's report on the chosen drafter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gradio as gr

from app import doctor
from app.gradio_internals import hidden_when
from app.jobs import AT_ONCE, Job, Update, wire
from app.models import Chosen

Asked = tuple[doctor.PromptSource, float | None, Chosen, str, dict[str, Any]]


def build_report() -> gr.Markdown:
    """Returns the component for the report. Foreign text in it is escaped, and remaining HTML is sanitized."""
    return gr.Markdown(
        visible=False,
        elem_id="doctor-report",
        sanitize_html=True,
        latex_delimiters=[],
        buttons=["copy"],
        container=True,
    )


def wire_doctor(
    go: gr.Button,
    measure: gr.Button,
    report: gr.Markdown,
    notice: gr.Textbox,
    ticket: gr.State,
    given: Sequence[Any],
    read: Callable[..., Asked],
) -> None:
    """Wire the button to the doctor, and remove the report when something is measured later.

    ticket: of the measurements, whose Stop also stops the doctor.
    given: the source and its controls.
    read: maps the values of these controls to the controller's arguments.
    """

    def run(job: Job, *values: Any) -> Iterator[Update[gr.Markdown]]:
        source, limit, chosen, _, settings = read(*values)
        for update in doctor.report(job, source, limit, chosen, settings):
            # stopped, it shows what was found by then; it never covers what was measured meanwhile
            yield Update() if job.replaced else update.map(lambda found: gr.Markdown(found, visible=True))

    measure.click(None, None, report, js=hidden_when("true"), **AT_ONCE)
    wire(go.click, run, ticket, given, [report], notice)
