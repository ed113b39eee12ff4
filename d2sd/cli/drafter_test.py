"""Replays recorded texts with several drafters: which is better, by how much, and where."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict

import orjson

from d2sd.calibration.replays import compare_replays
from d2sd.calibration.replays_reading import how_replayed, lines
from d2sd.cli.common import load_engine
from d2sd.errors import InputError
from d2sd.trace.text import printable, progress
from d2sd.trace.trace import Trace
from d2sd.whatif import replayed


def run(arguments: argparse.Namespace, drafters: Sequence[str | None], traces: Sequence[Trace]) -> None:
    """Print a table: one row per drafter, the first of them being what the others are held against."""
    if arguments.sweep or arguments.costs or (arguments.methods and "," in arguments.methods):
        raise InputError(
            "several traces or drafters are compared with one method: leave out --sweep and --costs, and name one method"
        )
    steps = []
    for drafter in drafters:
        own = copy(arguments)
        own.drafter = drafter
        engine = load_engine(own)
        steps.append(
            [replayed(engine, t, arguments.methods) for t in progress(traces, desc="replay", unit="text", leave=False)]
        )
    names = [d or arguments.model for d in drafters]
    groups = [str(t.header.get("domain") or "all") for t in traces]
    counts, cut = ([[getattr(o, field) for o in own] for own in steps] for field in ("committed", "cut"))
    rows = compare_replays(names, counts, groups, cut)
    if arguments.json:
        sys.stdout.write(orjson.dumps({"texts": len(traces), "rows": [asdict(r) for r in rows]}).decode() + "\n")
        return
    for row in rows:
        for line in lines(row):
            print(printable(line))
    print(f"{len(traces)} texts, replayed with the drafters alone. {how_replayed(rows, len(traces))}")
