"""Runs ``make test`` twelve times, at different real or simulated speeds of the machine, and prints a table.

A test that fails in some of these runs and passes in others depends on the machine's speed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
BUSY = [sys.executable, "-c", "while True: pass"]
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)(.*)", re.MULTILINE)
COUNTS = re.compile(r"^=* ?(.*(?:passed|failed|error).*) in ", re.MULTILINE)


@dataclass(frozen=True)
class Way:
    """One way to run the tests.

    times: number of runs.
    clock: factor by which the machine appears slower.
    prefix: command before ``make``, such as ``taskset``.
    busy: number of processes that each keep a core busy during the run.
    fresh: whether to run ``.ci/run`` in a new clone instead of ``make test`` in this one.
    """

    name: str
    times: int
    clock: str = "1"
    prefix: tuple[str, ...] = ()
    busy: int = 0
    fresh: bool = False


WAYS = [
    Way("plain", 4),
    Way("CLOCK=4", 2, "4"),
    Way("CLOCK=.25", 2, ".25"),
    Way("one core", 1, prefix=("taskset", "-c", "0")),
    Way("busy core", 2, busy=1),
    Way("fresh clone", 1, fresh=True),
]


def run(way: Way) -> tuple[int, str]:
    """Returns the exit code and the output of one run."""
    with ExitStack() as stack:
        folder = REPOSITORY
        command = [*way.prefix, "make", "test", f"CLOCK={way.clock}"]
        if way.fresh:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "clone"
            subprocess.run(["git", "clone", "--quiet", REPOSITORY, folder], check=True)
            command = [".ci/run"]
        for _ in range(way.busy):
            process = stack.enter_context(subprocess.Popen(BUSY))
            stack.callback(process.kill)
        variables = {
            "MAKEFLAGS": "",
            "MAKELEVEL": "",
            "D2SD_NEEDS_BROWSER": "1",
        }  # ignores the options of a parent make
        done = subprocess.run(
            command, cwd=folder, env=os.environ | variables, encoding="utf-8", capture_output=True, check=False
        )
    return done.returncode, done.stdout + done.stderr


def main() -> None:
    """Prints one line per run and its failures, then the runs of each failed test. The exit code is 1 if any run failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "ways", nargs="*", metavar="WAY", help=f"run only some of these: {', '.join(way.name for way in WAYS)}"
    )
    names = parser.parse_args().ways
    failures: dict[str, list[int]] = {}
    bad, number = False, 0
    for way in WAYS:
        for _ in range(way.times if not names or way.name in names else 0):
            number += 1
            began = time.monotonic()
            code, words = run(way)
            bad = bad or code != 0
            counts = "; ".join(COUNTS.findall(words))
            print(f"{number:2d}  {way.name:11}  {time.monotonic() - began:4.0f} s  exit {code}  {counts}", flush=True)
            failed = FAILED.findall(words)
            for test, cause in failed:
                failures.setdefault(test, []).append(number)
                print(f"    {test}{cause}", flush=True)
            if code and not failed:
                print(words[-2000:], flush=True)
    for test, runs in sorted(failures.items()):
        print(f"{test}  failed in {len(runs)} of {number}: {', '.join(map(str, runs))}")
    sys.exit(bad)


if __name__ == "__main__":
    main()
