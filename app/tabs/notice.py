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


def notice_box(elem_id: str) -> gr.Textbox:
    """Where ``sentence`` goes, and unseen beside it an element in which screen readers notice that it changes."""
    gr.HTML('<p role="status"></p>', elem_id=f"{elem_id}-said", elem_classes="said-aloud", padding=False)
    box = gr.Textbox(
        visible=False, interactive=False, elem_id=elem_id, elem_classes="notice", lines=2, max_lines=6, label="Notice"
    )
    say = f"(words) => {{ const said = document.querySelector('#{elem_id}-said p'); if (said) said.textContent = words; }}"
    box.change(None, box, None, js=say, show_progress="hidden", queue=False)
    return box


def sentence(problem: str = "", news: str = "", note: str = "") -> gr.Textbox:
    """The box with one of the three; hidden where there is none."""
    return gr.Textbox(
        without_paths(problem) or news or note,
        label="Please check" if problem else "Please wait" if news else "Note",
        elem_classes=["notice", "problem" if problem else "news"],
        visible=bool(problem or news or note),
    )


class Said:
    """What work says under the buttons while it goes on; nothing any more once other work was asked for, or this was stopped,
    which says so itself.

    A sentence is repeated with every update: Gradio's client may lose one that an update without it follows. Not once
    something else was asked for meanwhile, since that may have said something newer.
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
    """Count a request for work of this window: its number, a sentence with its place where it has to wait, and a timer.

    The timer keeps the place up to date. It starts in any case: others may come in between before the request has its place.
    """
    ticket.latest(asked(request))
    place = ahead(request)
    news, number = TURNS.news(ticket, place), ticket.request()
    ticket.place = place if news else -1
    return number, sentence(news=news), gr.Timer(active=True)


def line_of(notice: gr.Textbox, ticket: gr.State) -> gr.Timer:
    """A timer that tells a waiting window its place whenever that changes; it stops once its turn has come.

    Not more often: what is said just before the turn comes may arrive after what the work says first.
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
    """Take a problem back as soon as one of these events tells of a mended value. In the page alone: no server is asked."""
    hide = hidden_when(f"document.querySelector('#{notice.elem_id}.problem')")
    gr.on(list(changed), None, None, notice, js=hide, show_progress="hidden", queue=False)


def stopped(ticket: Ticket) -> gr.Textbox:
    """Stop what runs or waits, and say so where it had not begun."""
    return sentence(note="Cancelled while waiting in the queue: nothing was run." if ticket.stop() else "")
