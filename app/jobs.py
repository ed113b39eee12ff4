"""Jobs of the page: requested by an event, executed in Gradio's queue, reported in a notice, and stopped with a button.

A request for a job is handled outside the queue, so that Stop and newer requests also reach a job that still waits. Every view
has a ``Ticket`` with its newest job. ``ModelJobs`` and ``FileJobs`` connect events to jobs, ``answer`` to a function without a job.
Both report an error as one sentence, and drop answers that a newer request has made obsolete.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, ClassVar, Generic, TypeVar

import gradio as gr
import torch

from app.gradio_internals import event_fields, hidden_when, waiting
from app.settings import readable
from app.visitors import without_paths
from d2sd import InputError
from d2sd.errors import first_line

T = TypeVar("T")
log = logging.getLogger(__name__)
SECONDS_BETWEEN_PLACES = 0.5
MODEL = "model"  # concurrency id of all work that runs the models, one request at a time
HIDDEN: dict[str, Any] = {"show_progress": "hidden"}
AT_ONCE = HIDDEN | {"queue": False}
EACH = AT_ONCE | {"trigger_mode": "multiple"}  # by default, Gradio ignores a call while an earlier one is pending
IN_TURN = HIDDEN | {"concurrency_id": MODEL, "concurrency_limit": 1, "trigger_mode": "multiple"}
# One file at a time, since making a file may take seconds and hundreds of megabytes.
FILES = HIDDEN | {"concurrency_id": "files", "concurrency_limit": 1}
BESIDE = HIDDEN | {"concurrency_limit": 4}
CANCELLED = "Cancelled while waiting in the queue: nothing was run."
# Words of problems for which the bar offers a button, by the end of the CSS class with which the button appears.
OFFERS = {"models": "other models", "folder": "folder"}
NEXT = "Another run is in progress. Yours is next."  # shown to the first in the queue
TURNS_COUNTED = 9  # number of latest requests of each kind from which waiting times are estimated


@dataclass(frozen=True, slots=True)
class Update(Generic[T]):
    """A progress update for the page. At most one of ``problem``, ``news`` and ``note`` is not empty.

    value: new content of the view; None leaves the view unchanged.
    problem: an error message.
    news: what the job is doing now.
    note: a remark about the content.
    """

    value: T | None = None
    problem: str = ""
    news: str = ""
    note: str = ""

    def map(self, function: Callable[[T], Any]) -> Update[Any]:
        return self if self.value is None else replace(self, value=function(self.value))


@dataclass(slots=True, eq=False)
class Job:
    """One request for work.

    work: the generator function that does the work. Several events may request the same work.
    number: number of the call that requested the job; None for callers other than the page.
    data: data of the event that requested the job; empty unless a custom component sent the event.
    reports_end: whether the notice shows the job's updates even after the job was cancelled.
    quiet: whether the notice stays unchanged until the job has news.
    place: number of requests ahead of the job in the queue, as last shown; None if it was not shown yet.
    said: problem, news and note that the notice shows; None before the first update.
    call: number of the page's latest call at the time when ``said`` was shown. A higher number means that another call may have
        changed the notice since.
    """

    work: object = None
    number: int | None = None
    data: dict[str, Any] = field(default_factory=dict)
    reports_end: bool = False
    quiet: bool = False
    place: int | None = None
    said: tuple[str, str, str] | None = None
    call: int = 0
    started: bool = False
    ended: bool = False
    stopped: bool = False
    replaced: bool = False

    def cancelled(self) -> bool:
        """Returns whether the job was stopped, or replaced by a newer one. A cancelled job ends before its next step."""
        return self.stopped or self.replaced

    @property
    def waiting(self) -> bool:
        """Whether the job is neither started nor cancelled."""
        return not self.started and not self.cancelled()

    @property
    def active(self) -> bool:
        return not self.ended and not self.cancelled()

    def next(self, updates: Iterator[Update[T]]) -> Update[T] | None:
        """Returns the next update of the job's work; None at the end. An error becomes a last update with its message."""
        try:
            return next(updates, None)
        except InputError as error:
            return Update(problem=readable(error))
        except Exception as error:  # any error: show it, and keep the page working
            return Update(problem=failure_sentence(error))


@dataclass(slots=True)
class Ticket:
    """The newest job of a view, and the number of the latest call that the page made about the view."""

    job: Job | None = None
    call: int = 0

    def replace(self, job: Job | None) -> None:
        """Make this the newest job, and cancel the previous one, whether it runs or waits."""
        if self.job is not None:
            self.job.replaced = True
        self.job = job

    def start(self, work: object, number: int | None = None, even_stopped: bool = False) -> Job | None:
        """Starts and returns the newest job, if the queued call with this work and number requested it and it did not start yet.
        Otherwise returns None.

        The job of a later call is not started: the queued call has older values of the form.

        even_stopped: whether a job that was stopped while it waited is started too.
        """
        job = self.job
        if job is None or (job.work, job.number) != (work, number) or job.started or (job.stopped and not even_stopped):
            return None
        job.started, job.call = True, self.call
        return job

    def stop(self) -> bool:
        """Cancel the newest job, and return whether the job was waiting."""
        was_waiting = self.waiting
        if self.job is not None:
            self.job.stopped = True
        return was_waiting

    def latest(self, call: int | None) -> bool:
        """Register a call of the page, and return whether it is the latest. Answers to older calls must not change the page.

        call: number of the call. None (callers other than the page) always counts as the latest.
        """
        self.call = max(self.call, call or 0)
        return call is None or call == self.call

    @property
    def waiting(self) -> bool:
        return self.job is not None and self.job.waiting


class ModelTurns:
    """Records who runs the models, one request at a time, and estimates waiting times from the durations of the latest requests.

    clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._whose: object = None
        self._kind: object = None
        self._began = 0.0
        self._lasted: dict[object, deque[float]] = {}  # by kind

    @contextmanager
    def turn(self, by: object, kind: object = None) -> Iterator[None]:
        """Context in which a request runs the models. Its duration is recorded.

        by: the requester.
        kind: kind of work. Requests of one kind take a similar time.
        """
        self._whose, self._kind, self._began = by, kind, self._clock()
        try:
            yield
        finally:
            self._whose = None
            self._lasted.setdefault(kind, deque(maxlen=TURNS_COUNTED)).append(self._clock() - self._began)

    @property
    def busy(self) -> bool:
        """Whether a request is in progress."""
        return self._whose is not None

    def news(self, asking: object, waiting: int = 0) -> str:
        """Returns a sentence for a request that has to wait; empty if no request is running, or if the running one was made by
        ``asking``.

        waiting: number of requests in the queue ahead of this one.
        """
        return "" if self._whose is None or self._whose is asking else self.line(waiting)

    def line(self, waiting: int) -> str:
        """Returns a sentence for a queued request, with an estimated waiting time.

        The estimate uses the longest of the latest requests, so that the wait is rarely longer than announced.

        waiting: number of requests in the queue ahead of this one.
        """
        news = NEXT
        if waiting:
            news = f"Another visitor's run is in progress, and {waiting} more {'is' if waiting == 1 else 'are'} ahead of yours. You are number {waiting + 1} in the queue."
        if not self._lasted:
            return news
        longest = max(map(max, self._lasted.values()))  # over all kinds, since the kinds of queued requests are unknown
        left = longest  # if no request is running: the next one may be about to start
        if self._whose is not None:
            usual, gone = max(self._lasted.get(self._kind, [longest])), self._clock() - self._began
            left = max(usual - gone, max(usual, gone) / 2)  # a request that exceeds the usual time may take much longer
        return f"{news} Judging by the latest requests, the wait is {_about(left + longest * waiting)}."


def _about(seconds: float) -> str:
    if seconds < 10:
        return "less than 10 s"
    return f"about {10 * ceil(seconds / 10)} s" if seconds <= 90 else f"about {seconds / 60:.0f} minutes"


TURNS = ModelTurns()


def failure_sentence(error: Exception, what: str = "The run stopped") -> str:
    """Returns a sentence that begins with ``what`` and says why work failed. Unexpected errors are also logged."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return f"{what}: there was not enough memory. Use fewer tokens or a shorter prompt."
    if not isinstance(error, InputError):
        log.warning("a job failed", exc_info=error)
    return without_paths(f"{what}: {first_line(error, 200)}")


def notice_box(elem_id: str) -> gr.Textbox:
    """Returns the box for the texts of ``sentence``. Also adds a hidden live region, through which screen readers announce new
    sentences.
    """
    gr.HTML('<p role="status"></p>', elem_id=f"{elem_id}-said", elem_classes="said-aloud", padding=False)
    box = gr.Textbox(
        visible=False, interactive=False, elem_id=elem_id, elem_classes="notice", lines=2, max_lines=6, label="Notice"
    )
    say = f"(words) => {{ const said = document.querySelector('#{elem_id}-said p'); if (said) said.textContent = words; }}"
    box.change(None, box, None, js=say, **AT_ONCE)
    return box


def sentence(problem: str = "", news: str = "", note: str = "") -> gr.Textbox:
    """Returns an update of the notice: it shows one of the three texts, and is hidden if all are empty. A note may have several
    lines, and stays below the bar; the others are lines in the bar.
    """
    offers = [f"offers-{name}" for name, words in OFFERS.items() if words in problem]
    return gr.Textbox(
        without_paths(problem) or news or note,
        max_lines=16,
        label="Please check" if problem else "Please wait" if news else "Note",
        elem_classes=["notice", "problem" if problem else "news" if news else "note", *offers],
        visible=bool(problem or news or note),
    )


def hide_problem_on(notice: gr.Textbox, changes: Sequence[Any]) -> None:
    """Hide the notice if it shows a problem when one of these events occurs. This runs in the browser, without a server call."""
    hide = hidden_when(f"document.querySelector('#{notice.elem_id}.problem')")
    gr.on(list(changes), None, None, notice, js=hide, **AT_ONCE)


def _counted(
    event: Any, function: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Any], **options: Any
) -> Any:
    """Wire an event so that the last argument of its function is the number of the call, from 1.

    The browser numbers the calls, since their answers may arrive in a different order. ``trigger_mode`` makes Gradio send a call
    even while an earlier one is pending; by default, Gradio would ignore the newer call.
    """
    number = gr.Number(visible=False, precision=0)
    count = f"(...values) => [...values.slice(0, {len(inputs)}), (window.callsOfPage = (window.callsOfPage || 0) + 1)]"
    return event(function, [*inputs, number], outputs, js=count, **{"trigger_mode": "multiple"} | options)


class Jobs:
    """The jobs of one view. They share a ticket, so that a new job cancels the previous one. Each subclass is a kind of job.

    ticket: state that holds the view's ``Ticket``.
    notice: box for the sentences of the jobs, see ``notice_box``.
    stop: button that cancels the newest job. It is visible while there is one.
    """

    queue: ClassVar[dict[str, Any]] = BESIDE  # options of the queued call
    reports_end: ClassVar[bool] = False
    in_view: ClassVar[bool] = False  # whether the view itself shows the state of its jobs

    def __init__(self, ticket: gr.State, notice: gr.Textbox, stop: gr.Button | None = None) -> None:
        self.ticket, self.notice = ticket, notice
        self.buttons = [] if stop is None or self.in_view else [stop]
        self.told = [notice, *self.buttons]
        if stop is not None:
            stop.click(self.cancel, ticket, notice, **AT_ONCE)

    def on(
        self,
        event: Any,
        work: Callable[..., Iterator[Update[Any]]],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        wanted: tuple[Any, Callable[[Any], bool]] | None = None,
    ) -> Any:
        """Connect an event to a job. The event requests the job immediately. The job updates outputs and notice.

        event: a listener, such as ``button.click``.
        work: a generator function, called with the job and the values of the inputs; it may raise ``InputError``. The value of an
            update is the new value of the output, or a list of values for several outputs.
        wanted: a control, and a function of its value that returns whether the event requests the job.

        Returns the event that does the work, so that ``then`` can follow.
        """
        control, test = wanted or (None, None)

        def request(request: gr.Request, event: gr.EventData, *values: Any) -> Any:
            *choice, ticket, call = values
            if (test and not test(*choice)) or not ticket.latest(call):
                return gr.skip()
            job = Job(work, call, event_fields(event), reports_end=self.reports_end, quiet=self.in_view)
            return [*self.request(job, ticket, request), call]

        def run(*values: Any) -> Iterator[list[Any]]:
            *arguments, ticket, call = values
            unchanged = [gr.skip() for _ in outputs]
            if (job := ticket.start(work, call, even_stopped=self.in_view)) is None:
                yield [*unchanged, gr.skip()]
                return
            with self.turn(ticket, work), closing(work(job, *arguments)) as updates:  # type: ignore[type-var]
                # at least one update, since Gradio would treat an empty stream as empty values
                update = job.next(updates) or Update[Any]()
                try:
                    while update is not None:
                        shown = unchanged
                        if update.value is not None:
                            shown = update.value if len(outputs) > 1 else [update.value]
                        yield [*shown, _notice_of(update, job, ticket)]
                        update = job.next(updates)
                    if _has_news(job, ticket):
                        yield [*unchanged, _notice_of(Update(), job, ticket)]
                finally:
                    job.ended = True

        chosen = [self.ticket] if control is None else [control, self.ticket]
        number = gr.Number(visible=False, precision=0)
        requested = _counted(event, request, chosen, [*self.told, number], **AT_ONCE)
        worked = requested.then(run, [*inputs, self.ticket, number], [*outputs, self.notice], **self.queue)
        for button in self.buttons:
            worked.then(_hidden_at_rest, self.ticket, button, **AT_ONCE)
        return worked

    def request(self, job: Job, ticket: Ticket, request: gr.Request) -> list[Any]:
        """Make a job the newest one of the view. Returns updates of ``told``."""
        ticket.replace(job)
        return [sentence(), *(gr.Button(visible=True) for _ in self.buttons)]

    def turn(self, ticket: Ticket, work: object) -> AbstractContextManager[None]:
        return nullcontext()

    def cancel(self, ticket: Ticket) -> Any:
        reports = ticket.job is not None and ticket.job.active and ticket.job.reports_end
        waited = ticket.stop()
        return gr.skip() if reports or self.in_view else sentence(note=CANCELLED if waited else "")


class FileJobs(Jobs):
    """Jobs that read or write files, several at a time."""

    reports_end = True


class ModelJobs(Jobs):
    """The jobs of one view that run the models, one job at a time on the whole server. The notice of a waiting window shows its
    place in the queue.
    """

    queue = IN_TURN

    def __init__(self, ticket: gr.State, notice: gr.Textbox, stop: gr.Button | None = None) -> None:
        super().__init__(ticket, notice, stop)
        self.timer = gr.Timer(SECONDS_BETWEEN_PLACES, active=False)
        self.timer.tick(_show_place, ticket, [notice, self.timer], **AT_ONCE)
        self.told.append(self.timer)

    def request(self, job: Job, ticket: Ticket, request: gr.Request) -> list[Any]:
        place = ahead(request)
        news = TURNS.news(ticket, place)
        job.place = place if news else None
        job.quiet = job.quiet and not news
        ticket.replace(job)
        said = gr.skip() if job.quiet else sentence(news=news)
        # The timer also starts without news, since other requests may be queued before this one.
        return [said, *(gr.Button(visible=True) for _ in self.buttons), gr.Timer(active=True)]

    def turn(self, ticket: Ticket, work: object) -> AbstractContextManager[None]:
        return TURNS.turn(ticket, work)


class QuestionJobs(ModelJobs):
    """Jobs that answer questions about the shown run.

    The view itself shows whether a question is being answered, so the notice only reports waiting and loading. A question that was
    stopped while it waited gets an answer too. The visibility of ``stop`` does not change.
    """

    in_view = True


def _hidden_at_rest(ticket: Ticket) -> Any:
    return gr.skip() if ticket.job is not None and ticket.job.active else gr.Button(visible=False)


def _has_news(job: Job, ticket: Ticket) -> bool:
    """Returns whether a job was stopped, and the notice may still show its news."""
    stopped = job.stopped and not (job.replaced or job.reports_end)
    return stopped and job.said is not None and job.said[1] != "" and ticket.call == job.call


def _notice_of(update: Update[Any], job: Job, ticket: Ticket) -> Any:
    """Returns the change of the notice for an update of a job.

    Every update repeats the current sentence, since Gradio's client may lose a sentence that the next update does not contain.
    After another call of the page, a sentence is no longer repeated: that call may have shown a newer one. An empty update
    changes nothing.

    A stopped job hides its news, since they may reach the page after the answer to Stop, which hides them too.
    """
    if _has_news(job, ticket):
        job.said = "", "", ""
        return sentence()
    now = update.problem, update.news, update.note
    job.quiet = job.quiet and not update.news
    outdated = now == job.said and ticket.call != job.call
    if job.quiet or outdated or update == Update() or (job.cancelled() and not job.reports_end):
        return gr.skip()
    job.said, job.call = now, ticket.call
    return sentence(*now)


def _show_place(ticket: Ticket, request: gr.Request) -> tuple[Any, Any]:
    """Show a waiting window's new place in the queue, and stop the timer when the job of the window starts.

    An unchanged place is not sent again, since it could arrive after the first sentence of the job.
    """
    job = ticket.job
    if job is None or not job.waiting:
        return gr.skip(), gr.Timer(active=False)
    if request.session_hash not in waiting(MODEL):  # on a busy server, a tick may come before the call is queued
        return gr.skip(), gr.skip()
    if (place := ahead(request)) == job.place:
        return gr.skip(), gr.skip()
    job.place, job.quiet = place, False
    return sentence(news=TURNS.line(place)), gr.skip()


def ahead(request: gr.Request) -> int:
    """Returns how many other windows are queued for the models before this one."""
    return len(set(itertools.takewhile(lambda window: window != request.session_hash, waiting(MODEL))))


class Overtaken(Exception):
    """A later call of the page has made the answer to this call obsolete."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the page that is answered without a job.

    ticket: ticket of the view that the call changes.
    number: number of the call, from 1; None for callers other than the page.
    data: data of the call's event; empty unless a custom component sent the event.
    """

    ticket: Ticket
    number: int | None = None
    data: dict[str, Any] = field(default_factory=dict)

    def overtaken(self) -> bool:
        return not self.ticket.latest(self.number)

    def check(self) -> None:
        """Raise ``Overtaken`` if there was a later call. To be called before anything on the page changes."""
        if self.overtaken():
            raise Overtaken


def answer(
    event: Any,
    work: Callable[..., Sequence[Any]],
    ticket: gr.State,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    notice: gr.Textbox,
    **options: Any,
) -> Any:
    """Wire an event to a function without a job. The function's answer is dropped if there was a later call.

    work: called with the ``Call`` and the values of the inputs; returns the values of the outputs and the notice. The message of
        an ``InputError`` is shown in the notice.
    options: options of the event.

    Returns the event, so that ``then`` can follow.
    """

    def respond(event: gr.EventData, *values: Any) -> Sequence[Any]:
        *arguments, current, number = values
        return answer_to(Call(current, number, event_fields(event)), work, arguments, len(outputs))

    return _counted(event, respond, [*inputs, ticket], [*outputs, notice], **options)


def answer_to(call: Call, work: Callable[..., Sequence[Any]], values: Sequence[Any], outputs: int) -> Sequence[Any]:
    """Answers a call: returns the values of the outputs and the notice."""
    call.ticket.latest(call.number)
    nothing = [gr.skip() for _ in range(outputs)]
    shown: Sequence[Any] = ()
    try:
        shown = work(call, *values)
    except InputError as error:
        shown = [*nothing, sentence(problem=f"{error}")]
    except Overtaken:
        pass
    return [*nothing, gr.skip()] if call.overtaken() else shown
