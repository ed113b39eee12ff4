"""State of the page: ``Session`` of one page load, and ``History`` of a browser window, which survives a reload.

The page identifies its window by a random secret in the browser's session storage, so the window's history survives a reload while
the server runs. All storage is limited; the oldest entries are dropped first.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.guard import MAX_WINDOWS
from app.jobs import Ticket
from app.links import Link
from app.race.run import Race
from app.runs.recordings import LABEL, Recording, RunSet, prompt_label, short
from d2sd.trace.run import Message, Origin, RecordedRun

MAX_RUNS = 24
MAX_RUN_BYTES = 64 * 2**20  # compressed runs of one window
MAX_SETS = 4
MAX_SET_BYTES = 64 * 2**20
MAX_BYTES = 2**30  # all windows together
OWN = ("Explore", "Race")  # sources of runs that were made in the window
NAME = re.compile(r"[0-9a-f]{32}")
NUMBER = re.compile(r"[0-9]{1,3}")


def _same_run(known: RecordedRun, run: RecordedRun) -> bool:
    """Returns whether two runs are the same. If ``run`` was cut off, it must have as many lines as ``known``."""
    return known.holds(run) and (run.ended or run.lines() == known.lines())


def _free(title: str, others: list[RunSet]) -> str:
    taken = {s.title for s in others}
    names = (f"{short(title)} ({number})" if number > 1 else short(title) for number in itertools.count(1))
    return next(n for n in names if n not in taken)


@dataclass(slots=True)
class History:
    """The runs of a window, newest first; its last race; and its measured sets, newest first.

    most: maximum number of runs.
    """

    most: int = MAX_RUNS
    runs: list[Recording] = field(default_factory=list)
    race: Race | None = None
    sets: list[RunSet] = field(default_factory=list)

    def keep(self, run: RecordedRun, source: str, label: str = "") -> RecordedRun:
        """Add a run unless it is already in the list, and return the run in the list. If a limit is exceeded, the oldest runs are
        dropped.
        """
        kept = next((k.run for k in self.runs if k.run is run or _same_run(k.run, run)), None)
        if kept is not None:
            return kept
        self.runs.insert(0, Recording(short(label, LABEL) if label else prompt_label(run.header), run, source))
        while len(self.runs) > 1 and (len(self.runs) > self.most or sum(k.run.size for k in self.runs) > MAX_RUN_BYTES):
            self.runs.pop()
        return run

    def find(self, key: object) -> Recording | None:
        return next((k for k in self.runs if k.run.key == key), None)

    def numbered(self, text: str) -> Recording | None:
        """Returns the run with this number, or None. As in a class file, the oldest run is number 1."""
        number = int(text) if NUMBER.fullmatch(text) else 0
        return self.runs[-number] if 0 < number <= len(self.runs) else None

    def rename(self, key: object, label: object) -> None:
        """Rename a run; an empty name changes nothing."""
        recording, words = self.find(key), " ".join(str(label).split())
        if recording and words:
            recording.label = short(words)

    def move(self, key: object, by: object) -> None:
        """Move a run ``by`` places down the list, which also changes its number."""
        index = next((n for n, k in enumerate(self.runs) if k.run.key == key), None)
        if index is not None and isinstance(by, int) and 0 <= index + by < len(self.runs):
            self.runs.insert(index + by, self.runs.pop(index))

    def remove(self, key: object) -> None:
        self.runs = [k for k in self.runs if k.run.key != key]

    def keep_set(self, title: str, runs: list[Recording]) -> None:
        """Add a measured set. A set with the same runs is replaced. If another set has the title, the new title gets a number."""
        others = [s for s in self.sets if s.runs != tuple(runs)]
        self.sets = [RunSet(_free(title, others), tuple(runs)), *others][:MAX_SETS]
        while len(self.sets) > 1 and sum(s.size for s in self.sets) > MAX_SET_BYTES:
            self.sets.pop()

    @property
    def size(self) -> int:
        return sum(k.run.size for k in self.runs) + sum(s.size for s in self.sets)


class Histories:
    """Histories by window name, least recently used first."""

    def __init__(self) -> None:
        self._histories: dict[str, History] = {}
        self._lock = threading.Lock()

    def of(self, name: object, new: History) -> History:
        """Returns the history of the window with this name. Without one, returns ``new``, and stores it if the name is valid."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            return new
        with self._lock:
            history = self._histories[name] = self._histories.pop(name, new)
            size = sum(h.size for h in self._histories.values())
            for oldest in list(self._histories)[:-1]:
                if len(self._histories) > MAX_WINDOWS or size > MAX_BYTES:
                    size -= self._histories.pop(oldest).size
            return history


HISTORIES = Histories()


@dataclass(slots=True)
class Session(Ticket):
    """State of one window, and the ticket of its runs and downloads.

    shown: the run shown in Explore.
    link: the parsed query string that the window was opened with.
    fetched: step and node of a link with ``?trace=URL``, until the browser has fetched the trace and uploaded it.
    history: runs of the window.
    own: the user's settings by control, while the form shows the settings of a run; None if the form shows the user's settings.
    beside: runs of the list that the Race tab shows instead of a race; None: it shows a race.
    followed: key of the run whose settings the form shows.
    filled: settings of recent runs that were sent to the form, by control. There are several, because the settings of the latest
        run may not have reached the page yet when the user chooses the next run.
    travels: number of the last answered request of the browser's history for a run, from 1.
    """

    shown: RecordedRun = field(default_factory=RecordedRun)
    link: Link = field(default_factory=Link)
    fetched: dict[str, Any] | None = None
    history: History = field(default_factory=History)
    own: dict[str, Any] | None = None
    beside: Race | None = None
    followed: str = ""
    filled: list[dict[str, Any]] = field(default_factory=list)
    travels: int = 0

    def put_aside(self, values: dict[str, Any]) -> None:
        """Store the user's settings before the form shows the settings of a run.

        values: the form's current values by control. The first call stores all of them. Later calls store only values that the
            user has changed since: those that differ from the settings of runs that were sent to the form.
        """
        if self.own is None:
            self.own, self.filled = dict(values), []
            return
        for name, value in values.items():
            if not any(name in filled and _look_equal(value, filled[name]) for filled in self.filled):
                self.own[name] = value

    def show(self, run: RecordedRun, source: str, label: str = "", selection: Mapping[str, Any] | None = None) -> str:
        """Add a run to the window's history and show it. A previously shown run that is in progress continues in the background.

        source: where the run comes from, such as ``"Explore"``.
        label: name of the run in the list; empty for a default one.
        selection: the ``step`` and ``node`` to open; None: the view chooses a step.

        Returns the segment for the view.
        """
        self.shown = self.history.keep(run, source, label)
        origin = Origin(not self.shown.live, source in OWN, label if source == "Opened" else "")
        return self.shown.segment(0, Message.select(selection), origin)


def _look_equal(one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one.splitlines() == other.splitlines()  # text fields change line ends
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return float(one) == float(other) if numbers else one == other  # browsers send floats
