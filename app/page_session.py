"""State of one page load between events; ``app.history`` keeps what must survive a reload."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.history import History
from app.links import Link
from app.work import Ticket
from d2sd.trace.run import RecordedRun

OWN = ("Explore", "Race")  # sources of runs that were made in the window


@dataclass(slots=True)
class Session(Ticket):
    """One window's state, and the ticket of the newest run asked for in it.

    shown: the run that is shown.
    link: what the window was opened with.
    fetched: the step that its link names of a trace, which the browser is to fetch and upload.
    history: of the window.
    own: a person's settings by control, put aside while the form follows a shown run.
    followed: key of the run that the form agrees with.
    filled: what following has put into the form lately, by control. The last one alone is not enough: it may still be on its
        way to the page when the next run is chosen.
    getting: models are being got, and what asked for them says how that ended.
    """

    shown: RecordedRun = field(default_factory=RecordedRun)
    link: Link = field(default_factory=Link)
    fetched: dict[str, Any] | None = None
    history: History = field(default_factory=History)
    own: dict[str, Any] | None = None
    followed: str = ""
    filled: list[dict[str, Any]] = field(default_factory=list)
    getting: bool = False

    def put_aside(self, values: dict[str, Any]) -> None:
        """Store the user's settings before the form follows a run.

        The first time all of it is kept, later only what differs from what following has put there.
        """
        if self.own is None:
            self.own, self.filled = dict(values), []
            return
        for name, value in values.items():
            if not any(name in filled and _same(value, filled[name]) for filled in self.filled):
                self.own[name] = value

    def show(self, run: RecordedRun, source: str, label: str = "", **notes: Any) -> str:
        """Show another run, which the window keeps from now on: the segment for the view, with the given notes.

        A run that goes on does so out of sight.
        """
        self.shown = self.history.keep(run, source, label)
        return self.shown.segment(recorded=not self.shown.live, own=source in OWN, **notes)


def _same(one: Any, other: Any) -> bool:
    """Returns whether both values would look the same in a control."""
    if isinstance(one, str) and isinstance(other, str):
        return one.splitlines() == other.splitlines()  # a text field has its own line ends
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return float(one) == float(other) if numbers else one == other  # a browser's numbers are floats
