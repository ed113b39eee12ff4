"""Runs all campaigns from a seed, for a given time: ``python -m tools.torture [--seed N] [--minutes M] [--only NAME,…]``.

Prints a table "campaign, tried, failures", then the failures. The exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

from tools.torture.campaigns import IN_PROCESS
from tools.torture.served import SERVED

CAMPAIGNS: dict[str, Callable[[random.Random], Iterator[str | None]]] = {**IN_PROCESS, **SERVED}
# shares of the time; the share of every other campaign is 1
SHARES = {"browser": 3, "hands": 3, "losslessness": 2, "calls": 2}
SHOWN = 8  # printed failures per campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.torture", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--only", default="", metavar="NAME,…", help=", ".join(CAMPAIGNS))
    arguments = parser.parse_args()
    chosen = [name.strip() for name in arguments.only.split(",") if name.strip()] or list(CAMPAIGNS)
    if unknown := set(chosen) - set(CAMPAIGNS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose some of {', '.join(CAMPAIGNS)}")
    shares = sum(SHARES.get(name, 1) for name in chosen)
    print(
        f"seed {arguments.seed}, {arguments.minutes:g} minutes\n\n{'campaign':16s} {'tried':>8s} {'failures':>9s}",
        flush=True,
    )
    faults: dict[str, Counter[str]] = {}
    for name in chosen:
        seconds = 60 * arguments.minutes * SHARES.get(name, 1) / shares
        tried, found = campaign(name, arguments.seed, seconds)
        print(f"{name:16s} {tried:8d} {sum(found.values()):9d}", flush=True)
        faults[name] = found
    for name, found in faults.items():
        for fault, count in found.most_common(SHOWN):
            print(f"\n{name}, {count} times: {fault}")
    return int(any(faults.values()))


def campaign(name: str, seed: int, seconds: float) -> tuple[int, Counter[str]]:
    """Returns the number of cases tried within the time, and the count of each failure."""
    cases, tried, found = CAMPAIGNS[name](random.Random(f"{seed} {name}")), 0, Counter[str]()
    until = time.monotonic() + seconds
    try:
        for fault in cases:
            tried += 1
            if fault:
                found[fault] += 1
            if time.monotonic() > until:
                break
    finally:
        cases.close()  # type: ignore[attr-defined]
    return tried, found


if __name__ == "__main__":
    sys.exit(main())
