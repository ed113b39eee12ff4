"""Totals of one recorded run, or of the runs of a file."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import orjson

from d2sd.calibration.reading import count
from d2sd.trace.events import StepDone
from d2sd.trace.metrics import acceptance_by_depth
from d2sd.trace.text import escaped
from d2sd.trace.trace import Trace, read_traces

MAX_ROWS = 20


def run(arguments: argparse.Namespace) -> None:
    """Print them."""
    traces = list(read_traces(arguments.file))
    if len(traces) > 1:
        _stats_of_several(traces, arguments.json)
        return
    figures = statistics(traces[0])
    if arguments.json:
        sys.stdout.write(orjson.dumps(figures).decode() + "\n")
        return
    hits, repaired, gain = (figures[f] for f in ("boundary_hit_rate", "repaired_rate", "tokens_per_redraft"))
    spent = sum(figures["stage_seconds"].values())
    print(f"method                   {escaped(figures['method'])}")
    print(f"steps                    {figures['steps']}")
    print(
        f"tokens                   {figures['tokens']}  "
        + ", ".join(f"{k} {v}" for k, v in figures["tokens_by_proposer"].items())
    )
    print(f"mean acceptance length   {figures['mean_acceptance_length']:.2f}")
    print(
        f"tokens per second        {figures['tokens_per_second']:.1f}"
        if figures["seconds"]
        else "tokens per second        –"
    )
    print(f"nodes per step           {figures['nodes_per_step']:.1f}  ({figures['nodes']} in all)")
    print(f"boundary among prefixes  {'–' if hits is None else f'{hits:.1%}'}")
    print(f"repaired                 {'–' if repaired is None else f'{repaired:.1%}'}")
    print(f"tokens per re-draft      {'–' if gain is None else f'{gain:.2f}'}")
    for stage, seconds in figures["stage_seconds"].items() if spent else ():
        print(f"{stage.replace('_', ' '):<24} {seconds:.3f} s  {seconds / spent if spent else 0:.0%}")
    print(
        "accepted by depth        "
        + (
            ", ".join(f"{d['depth']}: {d['accepted']:.0%} of {d['reached']}" for d in figures["acceptance_by_depth"])
            or "–"
        )
    )


def _stats_of_several(traces: Sequence[Trace], as_json: bool) -> None:
    """A line for each run, and one for all of them."""
    rows = [{"run": number, "method": t.header["method"], **_line(t.steps)} for number, t in enumerate(traces, 1)]
    whole = {"runs": len(traces), **_line([step for t in traces for step in t.steps])}
    if as_json:
        sys.stdout.write(orjson.dumps({"runs": rows, "all": whole}).decode() + "\n")
        return
    for row in rows[:MAX_ROWS]:
        print(f"run {row['run']}: {escaped(str(row['method']))}, {_figures(row)}")
    if len(rows) > MAX_ROWS:
        print(f"… and {len(rows) - MAX_ROWS} more runs")
    print(f"{count(len(traces), 'run')}: {_figures(whole)}. More of them: d2sd calibrate --traces FILE")


def _line(steps: Sequence[StepDone]) -> dict[str, Any]:
    tokens = sum(len(step.committed) for step in steps)
    return {"steps": len(steps), "tokens": tokens, "mean_acceptance_length": tokens / len(steps) if steps else None}


def _figures(row: dict[str, Any]) -> str:
    alpha = row["mean_acceptance_length"]
    return f"{row['steps']} steps, α {'–' if alpha is None else f'{alpha:.2f}'}"


def statistics(trace: Trace) -> dict[str, Any]:
    """The figures of ``trace stats --json``."""
    first = trace.prefill.committed if trace.prefill else ()
    proposers = Counter(c.proposer for done in (first, *(s.committed for s in trace.steps)) for c in done)
    totals = asdict(trace.totals)
    return {
        "method": trace.header["method"],
        **totals,
        "nodes": round(totals["nodes_per_step"] * totals["steps"]),
        "tokens_by_proposer": {p: proposers[p] for p in ("first", "second", "target")},
        "acceptance_by_depth": [
            {"depth": d, "reached": n, "accepted": share} for d, n, share in acceptance_by_depth(trace.steps)
        ],
    }
