"""What the page sends with its events."""

from __future__ import annotations


class Event:
    """Stands for Gradio's: what a drawn part of the page says, its fields or anything else."""

    def __init__(self, *said, **fields):
        self._data = said[0] if said else fields
