"""Runs all tests several times in a row and prints what failed in which run: a test that fails now and then is wrong, or finds a fault."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
# workers and busy processes beside the tests, for the runs of one round
KINDS = [("3", 0)] * 4 + [("4", 0)] * 3 + [("3", 1)] * 3
BUSY = [sys.executable, "-c", "while True: pass"]
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)(.*)", re.MULTILINE)
COUNTS = re.compile(r"^=* ?(.*(?:passed|failed|error).*) in ", re.MULTILINE)


def test_run(workers: str, busy: int, selection: list[str]) -> tuple[int, str]:
    """Returns the exit code of one run of the tests and what it printed.

    workers: number of test processes.
    busy: number of processes that keep a core busy meanwhile.
    selection: files or options for pytest.
    """
    command = [sys.executable, "-m", "pytest", "-n", workers, "--dist", "worksteal", "-rfE", *selection]
    with ExitStack() as stack:
        for _ in range(busy):
            process = stack.enter_context(subprocess.Popen(BUSY))
            stack.callback(process.kill)
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            text=True,
            capture_output=True,
            check=False,
        )
    return done.returncode, done.stdout + done.stderr


def main() -> None:
    """Print a line a run with its failures, then the failed tests with their runs; the exit code is 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=len(KINDS), help="number of runs (default 10)")
    parser.add_argument("tests", nargs="*", help="files or options for pytest (default all)")
    arguments = parser.parse_args()
    failures: dict[str, list[int]] = {}
    bad = False
    for number in range(1, arguments.runs + 1):
        workers, busy = KINDS[(number - 1) % len(KINDS)]
        began = time.monotonic()
        code, words = test_run(workers, busy, arguments.tests)
        bad = bad or code != 0
        counts = COUNTS.search(words)
        print(
            f"{number:2d}  -n {workers}, {busy} busy  {time.monotonic() - began:4.0f} s  exit {code}  {counts[1] if counts else ''}",
            flush=True,
        )
        failed = FAILED.findall(words)
        for test, cause in failed:
            failures.setdefault(test, []).append(number)
            print(f"    {test}{cause}", flush=True)
        if code and not failed:
            print(words[-2000:], flush=True)
    for test, runs in sorted(failures.items()):
        print(f"{test}  failed in {len(runs)} of {arguments.runs}: {', '.join(map(str, runs))}")
    sys.exit(bad)


if __name__ == "__main__":
    main()
