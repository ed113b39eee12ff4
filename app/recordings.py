"""Runs with a name, as lists and sets of the page hold them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from app import uploads
from app.uploads import short
from d2sd import InputError, Trace
from d2sd.calibration import Gathering
from d2sd.trace.run import RecordedRun


@dataclass(slots=True)
class Recording:
    """A run in a list.

    label: its name there.
    source: its origin in a few words.
    domain: its prompt's group.
    at: time of creation, in seconds since 1970.
    """

    label: str
    run: RecordedRun
    source: str = ""
    domain: str = "all"
    at: float = field(default_factory=time.time, compare=False)

    @classmethod
    def of(cls, trace: Trace, label: str = "") -> Recording:
        """Returns a run that was just recorded; named by its prompt unless a label is given."""
        return cls(label or prompt_label(trace.header), RecordedRun.of(trace.records()), domain=trace.domain)

    @property
    def header(self) -> dict[str, Any]:
        """The header of the run."""
        return self.run.header


def prompt_label(header: dict[str, Any]) -> str:
    """Returns a run's prompt as a label."""
    return short(" ".join(str(header.get("prompt") or "no prompt").split()))


class Traces(Sequence[Trace]):
    """Recordings as data, each decoded on access."""

    def __init__(self, runs: Sequence[Recording]):
        self._runs = runs

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, index: Any) -> Any:
        return self._runs[index].run.trace()


@dataclass(frozen=True)
class RunSet:
    """Runs under one title; ``source``: where they are stored, for opening one of them."""

    title: str
    runs: tuple[Recording, ...]
    source: str = ""

    @classmethod
    def of(cls, title: str, traces: Iterable[Trace]) -> RunSet:
        """Returns a set of runs that were just recorded."""
        return cls(title, tuple(map(Recording.of, traces)))

    @property
    def traces(self) -> Traces:
        """The runs as data."""
        return Traces(self.runs)

    @cached_property
    def gathering(self) -> Gathering:
        """The statistics for its figures."""
        return Gathering(self.traces)

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompt of each run: its text, or else its tokens; empty if unknown."""
        return self.gathering.counted().prompts

    @property
    def size(self) -> int:
        """Size in memory, in characters."""
        return sum(r.run.size for r in self.runs)


@dataclass(slots=True)
class Recordings:
    """The measured runs of one window, in the order of the drawing, and their title."""

    runs: list[Recording] = field(default_factory=list)
    title: str = ""


def read_uploads(paths: Sequence[Path]) -> tuple[list[tuple[Recording, Trace]], list[str]]:
    """Returns the uploaded traces that can be read, and a sentence for each of the others."""
    good, bad = [], []
    room = uploads.MAX_MEGABYTES_TOGETHER * 10**6
    for path in paths:
        try:
            found, size = uploads.read_together(path, room)
        except InputError as error:
            bad.append(f"{short(path.name)} was not read: {error}")
            continue
        room -= size
        for number, (run, trace) in enumerate(found, 1):
            label = short(path.name) if len(found) == 1 else f"{number} of {short(path.name, 40)}"
            good.append((Recording(label, run, domain=trace.domain), trace))
    return good, bad
