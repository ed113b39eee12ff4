"""“Why is it rejected?”: a button of Calibrate, and the doctor's report on the chosen drafter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr

import d2sd
from app import doctor
from app.gradio_internals import hidden_when
from app.models import Chosen
from app.tabs.notice import IN_TURN, Said, ask, line_of
from app.work import TURNS, Ticket, Update

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


def wire(
    go: gr.Button,
    measure: gr.Button,
    report: gr.Markdown,
    notice: gr.Textbox,
    ticket: gr.State,
    given: Sequence[Any],
    read: Any,
) -> None:
    """Wire the button to the doctor, and remove the report when something is measured later.

    given: the source and its controls.
    read: maps the values of these controls to the controller's arguments.
    """
    number = gr.State(0)

    def request(current: Ticket, request: gr.Request) -> tuple[int, Any, Any]:
        return ask(current, request)

    def run(current: Ticket, own: int, *values: Any) -> Iterator[tuple[Any, Any]]:
        said = Said(current, own)
        try:
            source, limit, chosen, _, settings = read(*values)
        except d2sd.InputError as error:
            yield gr.skip(), said(Update(problem=f"{error}"))
            return
        for update in TURNS.taken(current, doctor.report(current, own, source, limit, chosen, settings)):
            # stopped, it tells what was found by then; it never covers what was measured meanwhile
            nothing = update.value is None or current.replaced(own)
            yield gr.skip() if nothing else gr.Markdown(update.value, visible=True), said(update)

    measure.click(None, None, report, js=hidden_when("true"), show_progress="hidden", queue=False)
    asked = go.click(request, ticket, [number, notice, line_of(notice, ticket)], show_progress="hidden", queue=False)
    asked.then(run, [ticket, number, *given], [report, notice], **IN_TURN)
