"""The message line under the buttons of a tab: errors, progress, or hints."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import gradio as gr

from app.gradio_internals import asked, hidden_when, waiting
from app.visitors import without_paths
from app.work import TURNS, Ticket, Update

SECONDS_BETWEEN_PLACES = 0.5
MODEL = "model"  # the concurrency id of everything that runs the models: it takes turns
# Options of an event that runs the models.
IN_TURN: dict[str, Any] = {
    "show_progress": "hidden",
    "concurrency_id": MODEL,
    "concurrency_limit": 1,
    "trigger_mode": "multiple",
}


def notice_box(elem_id: str) -> gr.Textbox:
    """Returns the box for ``sentence``, and adds a hidden live region from which screen readers announce its changes."""
    gr.HTML('<p role="status"></p>', elem_id=f"{elem_id}-said", elem_classes="said-aloud", padding=False)
    box = gr.Textbox(
        visible=False, interactive=False, elem_id=elem_id, elem_classes="notice", lines=2, max_lines=6, label="Notice"
    )
    say = f"(words) => {{ const said = document.querySelector('#{elem_id}-said p'); if (said) said.textContent = words; }}"
    box.change(None, box, None, js=say, show_progress="hidden", queue=False)
    return box


def sentence(problem: str = "", news: str = "", note: str = "") -> gr.Textbox:
    """Returns the box with one of the three sentences; hidden if all are empty."""
    return gr.Textbox(
        without_paths(problem) or news or note,
        label="Please check" if problem else "Please wait" if news else "Note",
        elem_classes=["notice", "problem" if problem else "news"],
        visible=bool(problem or news or note),
    )


class Said:
    """The sentences that work in progress shows under the buttons, until other work is requested or this work is stopped.

    Each update repeats the sentence, since Gradio's client may lose one if the next update has none. After another request it
    is not repeated, since that request may have shown a newer sentence.
    """

    def __init__(self, ticket: Ticket, number: int):
        self._ticket, self._number = ticket, number
        self._last: tuple[str, str, str] | None = None
        self._asked = ticket.asked

    def __call__(self, update: Update[Any]) -> Any:
        """The box for an update. One that is empty says nothing."""
        now = update.problem, update.news, update.note
        older = now == self._last and self._ticket.asked != self._asked
        if self._ticket.newest != self._number or update == Update() or older:
            return gr.skip()
        self._last, self._asked = now, self._ticket.asked
        return sentence(*now)


def ask(ticket: Ticket, request: gr.Request) -> tuple[int, gr.Textbox, gr.Timer]:
    """Register a request of this window. Returns its number, a sentence with its place if it has to wait, and a timer.

    The timer updates the place. It always starts, since other requests may be queued before this one.
    """
    ticket.latest(asked(request))
    place = ahead(request)
    news, number = TURNS.news(ticket, place), ticket.request()
    ticket.place = place if news else -1
    return number, sentence(news=news), gr.Timer(active=True)


def line_of(notice: gr.Textbox, ticket: gr.State) -> gr.Timer:
    """Returns a timer that shows a waiting window its place in the queue when it changes, and stops when its work starts.

    An unchanged place is not sent again: it could arrive after the first sentence of the work.
    """
    timer = gr.Timer(SECONDS_BETWEEN_PLACES, active=False)

    def tell(current: Ticket, request: gr.Request) -> tuple[Any, Any]:
        if not current.waiting:
            return gr.skip(), gr.Timer(active=False)
        if not waits(request):  # a busy server may take longer to put it in the line than the first tick takes to come
            return gr.skip(), gr.skip()
        if (place := ahead(request)) == current.place:
            return gr.skip(), gr.skip()
        current.place = place
        return sentence(news=TURNS.line(place)), gr.skip()

    timer.tick(tell, ticket, [notice, timer], show_progress="hidden", queue=False)
    return timer


def ahead(request: gr.Request) -> int:
    """Returns how many other windows are queued for the models before this one."""
    return len(set(itertools.takewhile(lambda window: window != request.session_hash, waiting(MODEL))))


def waits(request: gr.Request) -> bool:
    """Returns whether this window is queued for the models."""
    return request.session_hash in waiting(MODEL)


def forgive(notice: gr.Textbox, changed: Sequence[Any]) -> None:
    """Hide an error message when one of these events changes a value. This runs in the browser, without a server call."""
    hide = hidden_when(f"document.querySelector('#{notice.elem_id}.problem')")
    gr.on(list(changed), None, None, notice, js=hide, show_progress="hidden", queue=False)


def stopped(ticket: Ticket) -> gr.Textbox:
    """Cancel running or queued work. Returns a sentence if it had not started."""
    return sentence(note="Cancelled while waiting in the queue: nothing was run." if ticket.stop() else "")
