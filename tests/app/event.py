"""What the page sends with its events, and how it is answered."""

from __future__ import annotations

from app.jobs import Call, answer_to


class Event:
    """Stands for Gradio's: what a drawn part of the page says, its fields or anything else."""

    def __init__(self, *said, **fields):
        self._data = said[0] if said else fields


def answered(work, ticket, *values, number=None, outputs=1, **data):
    """What the outputs and the notice show after a call of this number among those of the page, with the data of its event."""
    return answer_to(Call(ticket, number, data), work, values, outputs)
