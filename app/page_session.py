"""State of one page load between events; ``app.history`` keeps what must survive a reload."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.history import History
from app.jobs import Ticket
from app.links import Link
from d2sd.trace.run import RecordedRun

OWN = ("Explore", "Race")  # sources of runs that were made in the window


@dataclass(slots=True)
class Session(Ticket):
    """State of one window, and the ticket of its runs and downloads.

    shown: the run that is shown.
    link: the parsed query string that the window was opened with.
    fetched: fields of a link with ``?trace=URL``, which the browser fetches and uploads: the step to open.
    history: runs of the window.
    own: the user's settings by control, stored while the form shows the settings of a run; None if they are in the form.
    followed: key of the run whose settings the form shows.
    filled: settings of recent runs that were sent to the form, by control. More than the latest is needed: it may not have
        reached the page yet when the next run is chosen.
    """

    shown: RecordedRun = field(default_factory=RecordedRun)
    link: Link = field(default_factory=Link)
    fetched: dict[str, Any] | None = None
    history: History = field(default_factory=History)
    own: dict[str, Any] | None = None
    followed: str = ""
    filled: list[dict[str, Any]] = field(default_factory=list)

    def put_aside(self, values: dict[str, Any]) -> None:
        """Store the user's settings before the form follows a run.

        values: the form's current values by control. The first call stores all of them; later calls store only those that
            differ from the settings of runs that were sent to the form.
        """
        if self.own is None:
            self.own, self.filled = dict(values), []
            return
        for name, value in values.items():
            if not any(name in filled and _same(value, filled[name]) for filled in self.filled):
                self.own[name] = value

    def show(self, run: RecordedRun, source: str, label: str = "", **notes: Any) -> str:
        """Add a run to the window's history and show it. A run in progress continues in the background.

        source: where the run comes from, such as ``"Explore"``.
        label: name of the run in the list; empty for a default one.
        notes: further fields of the segment.

        Returns the segment for the view.
        """
        self.shown = self.history.keep(run, source, label)
        return self.shown.segment(recorded=not self.shown.live, own=source in OWN, **notes)


def _same(one: Any, other: Any) -> bool:
    """Returns whether both values would look the same in a control."""
    if isinstance(one, str) and isinstance(other, str):
        return one.splitlines() == other.splitlines()  # a text field has its own line ends
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return float(one) == float(other) if numbers else one == other  # a browser's numbers are floats
