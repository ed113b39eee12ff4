"""Replay recorded texts with several drafters: which is better, by how much, and where."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, replace

import orjson
from tqdm import tqdm

from d2sd.calibration.reading import with_interval
from d2sd.calibration.replays import Replayed, Row, compare_replays
from d2sd.calibration.resampling import MIN_UNITS
from d2sd.cli.common import load_engine
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.methods import METHODS
from d2sd.trace.text import printable
from d2sd.trace.trace import Trace, load_trace
from d2sd.whatif import Replay, recorded_config

SHOWN_POSITIONS = 8


def run(arguments: argparse.Namespace, drafters: Sequence[str | None]) -> None:
    """Print a table: one row per drafter, the first of them being what the others are held against."""
    if arguments.sweep or arguments.costs or (arguments.methods and "," in arguments.methods):
        raise InputError(
            "several traces or drafters are compared with one method: leave out --sweep and --costs, and name one method"
        )
    traces = [load_trace(path) for path in arguments.traces]
    committed = []
    for drafter in drafters:
        own = copy(arguments)
        own.drafter = drafter
        engine = load_engine(own)
        committed.append([_committed(engine, t, arguments.methods) for t in tqdm(traces, unit="text", leave=False)])
    names = [d or arguments.model for d in drafters]
    rows = compare_replays(names, committed, [str(t.header.get("domain") or "all") for t in traces])
    if arguments.json:
        sys.stdout.write(orjson.dumps({"texts": len(traces), "rows": [asdict(r) for r in rows]}).decode() + "\n")
        return
    for row in rows:
        for line in _lines(row):
            print(printable(line))
    print(f"{len(traces)} texts, replayed with the drafters alone. {_how(rows, len(traces))}")


def _committed(engine: Engine, trace: Trace, method: str | None) -> tuple[int, ...]:
    """Tokens of every step that these drafters would have taken over the text."""
    recorded = recorded_config(trace)
    wanted = method or _method(engine, str(trace.header["method"]))
    own = replace(recorded, method=wanted, block_size=None, second_block_size=None, inspect=False, backend="auto")
    config = engine.resolve(own)  # γ as each drafter was trained
    return next(Replay(engine, trace).run([config])).committed


def _method(engine: Engine, recorded: str) -> str:
    if engine.models.first is None and engine.models.eagle3 is not None:
        return "eagle3"
    drafts = recorded in METHODS and METHODS[recorded].first_drafter
    return recorded if drafts else "dflash"


def _lines(row: Row) -> list[str]:
    shares = ", ".join(f"{k}: {f.value:.0%}" for k, f in enumerate(row.reached[:SHOWN_POSITIONS], 1))
    groups = [f"  {kind}: {_words(found)}" for kind, found in row.groups.items()]
    return [
        f"{row.name}: {_words(row.whole)}",
        *groups,
        f"  accepted by position (of the steps that got there): {shares or '–'}",
    ]


def _words(found: Replayed) -> str:
    words = f"α {with_interval(found.alpha)}, {found.steps} steps"
    return words if found.difference is None else f"{words}; {with_interval(found.difference, '+')} against the first"


def _how(rows: Sequence[Row], texts: int) -> str:
    if texts < MIN_UNITS:
        return f"Intervals take at least {MIN_UNITS} texts."
    if len(rows) == 1:
        return "Brackets: 95% bootstrap interval over texts."
    return "Brackets: 95% bootstrap intervals over texts; those of the differences hold all together (Bonferroni)."
