"""Stand-ins for Gradio's events, and the page's answers to them."""

from __future__ import annotations

from app.jobs import Call, Job, answer_to


class Event:
    """Replaces Gradio's event; its data is the positional argument, or else the fields."""

    def __init__(self, *said, **fields):
        self._data = said[0] if said else fields


def answered(work, ticket, *values, number=None, outputs=1, **data):
    """Returns what the outputs and the notice show after a call with this number and event data."""
    return answer_to(Call(ticket, number, data), work, values, outputs)


def updates_of(job: Job, work):
    """The updates of a job's work, as the page shows them."""
    return iter(lambda: job.next(work), None)
