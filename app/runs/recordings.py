"""Named runs for the page's lists and sets, and reading runs from uploaded files.

Logs of serving engines are converted to traces.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from d2sd import InputError, Trace
from d2sd.calibration import RunStatistics
from d2sd.errors import require
from d2sd.logs import Figures, import_log, is_log, sources_of
from d2sd.logs.sentences import Answer, answers, report_lines
from d2sd.trace.files import UNREADABLE, opened
from d2sd.trace.run import RecordedRun
from d2sd.trace.text import clip, encodable
from d2sd.trace.trace import Reader, lines_of

FILE_TYPES = [".jsonl", ".json", ".gz", ".log", ".txt"]  # suffixes of traces and logs
MAX_MEGABYTES = 96  # maximum size of a file, unpacked; browsers can still draw this much
MAX_MEGABYTES_TOGETHER = 256  # maximum size of all files that are measured together, unpacked
SECONDS_KEPT = 3600  # lifetime of an uploaded file; runs that were read from the file stay
NEXT_RUN = re.compile(rb'\n\{"event":"Header"')
MAX_OPENED = 24  # maximum number of runs that one opened file adds to the list
LABEL = 200  # maximum characters of a prompt in the name of its run


def short(text: str, most: int = 60) -> str:
    return clip(encodable(text), most)


@dataclass(slots=True)
class Recording:
    """A run in a list.

    label: name in the list.
    source: origin in a few words.
    domain: group of the prompt.
    at: time of creation, in seconds since 1970.
    """

    label: str
    run: RecordedRun
    source: str = ""
    domain: str = "all"
    at: float = field(default_factory=time.time, compare=False)

    @classmethod
    def of(cls, trace: Trace) -> Recording:
        return cls(prompt_label(trace.header), RecordedRun.of(trace.records()), domain=trace.domain)

    @property
    def header(self) -> dict[str, Any]:
        return self.run.header


def prompt_label(header: dict[str, Any]) -> str:
    return short(" ".join(str(header.get("prompt") or "no prompt").split()), LABEL)


@dataclass(frozen=True)
class RunSet:
    """Runs under one title."""

    title: str
    runs: tuple[Recording, ...]

    @cached_property
    def statistics(self) -> RunStatistics:
        return RunStatistics(kept.run.trace() for kept in self.runs)

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompt of each run: its text, or its tokens if the text is unknown; empty if both are unknown."""
        return self.statistics.counted().prompts

    @property
    def size(self) -> int:
        return sum(r.run.size for r in self.runs)


@dataclass(slots=True)
class Recordings:
    """The measured runs of one window, in the order in which the view numbers them, and their title."""

    runs: list[Recording] = field(default_factory=list)
    title: str = ""


def read_all(path: str | Path) -> tuple[list[RecordedRun], str]:
    """Returns at most ``MAX_OPENED`` runs of a trace file or log, plain or gzip, and a note about further runs and the findings of
    a log.

    A log with only totals has no runs. Only checked fields reach the page. Raises ``InputError``.
    """
    raw = _unpacked(path)
    if is_log(path):
        runs = list(islice(_logged(path), MAX_OPENED + 1))
        more = f"Only the first {MAX_OPENED} runs of this log are in the list; Calibrate reads all its runs."
        notes = [*([more] if len(runs) > MAX_OPENED else []), *report_lines(log_answers(path))]
        return [RecordedRun.of(run.records()) for run in runs[:MAX_OPENED]], "\n".join(notes)
    parts = _split_runs(raw)
    read = [RecordedRun.read(part) for part in parts[:MAX_OPENED]]
    require(all(run.steps for run in read), "the trace has no steps, so there is nothing to show")
    note = f"Only the first {MAX_OPENED} of {len(parts)} runs are in the list." if len(parts) > MAX_OPENED else ""
    return read, note


def read_uploads(paths: Sequence[Path]) -> tuple[list[tuple[Recording, Trace]], list[str]]:
    """Returns the uploaded traces that can be read, and a sentence for each file that cannot."""
    good, bad = [], []
    room = MAX_MEGABYTES_TOGETHER * 10**6
    for path in paths:
        try:
            raw = _unpacked(path)
            require(
                len(raw) <= room,
                f"all files together have more than {MAX_MEGABYTES_TOGETHER} MB, unpacked; choose fewer files",
            )
            parts = _runs_of(path, raw)
        except InputError as error:
            bad.append(f"{short(path.name)} was not read: {error}")
            continue
        room -= len(raw)
        for number, (run, trace) in enumerate(parts, 1):
            label = short(path.name) if len(parts) == 1 else f"{number} of {short(path.name, 40)}"
            good.append((Recording(label, run, domain=trace.domain), trace))
    return good, bad


def _runs_of(path: Path, raw: bytes) -> list[tuple[RecordedRun, Trace]]:
    """Returns each run of a trace file or log, as a stored and as a parsed run. Raises ``InputError``."""
    if not is_log(path):
        readers = [(Reader(), part) for part in _split_runs(raw)]
        return [(RecordedRun.of(reader.records(lines_of(part))), reader.trace) for reader, part in readers]
    runs = [(RecordedRun.of(run.records()), run) for run in _logged(path)]
    require(runs, "it is a log with only totals, without steps; “Open a trace” in Explore explains the totals")
    return runs


def log_answers(path: str | Path) -> list[Answer]:
    """Returns the figures of each source of a server's log, and what they say about its drafter. Raises ``InputError``."""
    return answers(sources_of(import_log(path, most=MAX_MEGABYTES * 10**6)))


def _logged(path: str | Path) -> Iterator[Trace]:
    return (item for item in import_log(path, most=MAX_MEGABYTES * 10**6) if not isinstance(item, Figures))


def _split_runs(raw: bytes) -> list[bytes]:
    starts = [0, *(m.start() + 1 for m in NEXT_RUN.finditer(raw))]
    return [raw[a:b] for a, b in pairwise([*starts, len(raw)])]


def _unpacked(path: str | Path) -> bytes:
    """Returns the content of a file, at most ``MAX_MEGABYTES`` unpacked."""
    limit = MAX_MEGABYTES * 10**6
    try:
        with opened(path) as file:
            raw = file.read(limit + 1)
    except FileNotFoundError:
        raise InputError("this file is no longer stored; upload it again") from None
    except UNREADABLE:
        raise InputError("the file cannot be read: it is neither JSON lines nor an intact gzip file") from None
    require(
        len(raw) <= limit,
        f"the trace is larger than {MAX_MEGABYTES} MB, which is more than the page draws; "
        "read it with d2sd.load_trace, or record fewer steps",
    )
    return raw
