"""Holds a server's log against the same drafter here, step by step."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import orjson

from d2sd.calibration.reading import with_interval
from d2sd.calibration.resampling import MIN_UNITS
from d2sd.cli.common import load_engine
from d2sd.doctor.changes import Drafter
from d2sd.doctor.served import At, Served, hold, summed
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.models.eagle3_folder import is_eagle3, published_config
from d2sd.trace.text import printable, progress
from d2sd.trace.trace import Trace

SHOWN_POSITIONS = 8


def run(arguments: argparse.Namespace, drafters: Sequence[str | None], traces: Sequence[Trace]) -> None:
    """Print how often the server accepts less than the drafter here, where it first does, and acceptance by position."""
    if arguments.sweep or arguments.costs or arguments.methods or len(drafters) > 1:
        raise InputError("--served holds a log against one drafter: leave out --methods, --sweep and --costs")
    arguments.drafter = drafters[0]
    engine = load_engine(arguments)
    model = _drafter(engine, drafters[0])
    name = model.config.name_or_path
    steps = progress(hold(engine, model, traces), total=len(traces), desc="replay", unit="run", leave=False)
    found = summed(list(steps), traces)
    if arguments.json:
        sys.stdout.write(orjson.dumps({"drafter": name, "runs": len(traces), **asdict(found)}).decode() + "\n")
        return
    print(printable(f"Reference: {name}"))
    for line in lines(found, len(traces)):
        print(printable(line))


def _drafter(engine: Engine, named: str | None) -> Drafter:
    first, eagle3 = engine.models.first, engine.models.eagle3
    if eagle3 is not None and (first is None or (named and is_eagle3(published_config(named)))):
        return eagle3
    if first is None:
        raise InputError("these models have no drafter; name the one that is served with --drafter")
    return first


def lines(found: Served, runs: int) -> Iterator[str]:
    """Sentences about a log and the same drafter here."""
    same = len(found.places) - found.less - found.more
    yield (
        f"{len(found.places)} steps of the server, each drafted again here after the same text: as many tokens accepted in {same} of them, "
        f"fewer by the server in {found.less}, more in {found.more}."
    )
    if (first := found.first) is not None:
        yield (
            f"The first with fewer: step {first.step + 1} of run {first.run + 1}, after {first.at} tokens of its output. The server "
            f"accepted {first.server} of {first.drafted} drafted tokens, the reference {first.reference}."
        )
    yield f"Accepted tokens a step, server less reference: {with_interval(found.difference, '+')}."
    for name in ("server", "reference"):
        yield f"  by position, {name}: {_shares(found.positions, name)}"
    if found.others:
        yield (
            f"{found.others} of {found.tokens} tokens are not those that the target here would choose: other weights or other "
            "rounding. There, the server's target differs too."
        )
    yield "By position: of the steps that accept all before, as far as a draft and the text go." + (
        f" Intervals take at least {MIN_UNITS} runs."
        if runs < MIN_UNITS
        else " Brackets: 95% bootstrap interval over runs."
    )


def _shares(positions: Sequence[At], name: str) -> str:
    shares = (getattr(at, name) for at in positions[:SHOWN_POSITIONS])
    return ", ".join(f"{n}: {'–' if share is None else format(share, '.0%')}" for n, share in enumerate(shares, 1))
