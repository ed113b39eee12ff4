"""Ask a recorded greedy run what other settings would have committed: the drafters alone, nothing is decoded again."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

import orjson
from tqdm import tqdm

from d2sd.bench.settings import SYNTAX, parse_settings, runnable
from d2sd.cli.common import add_model_arguments, load_engine, printable
from d2sd.trace.trace import load_trace
from d2sd.whatif import Replay, recorded_config

HELP = "ask a recorded greedy run what other settings would have committed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``whatif``."""
    parser.add_argument("trace", metavar="TRACE", help="a trace recorded at temperature 0 with the model named below")
    parser.add_argument(
        "--methods", metavar="A,B,…", help=f"all, or a list (default: the recorded one). Each: {SYNTAX}"
    )
    parser.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="FIELD=A,B,…",
        help="every method that uses the field with each of the values, such as K=1,2,4,8; may be repeated",
    )
    add_model_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> None:
    """Print what was recorded, then one row per setting."""
    trace = load_trace(arguments.trace)
    recorded = recorded_config(trace)
    base = replace(recorded, inspect=False, backend="auto")
    methods = arguments.methods or recorded.method
    settings = parse_settings(methods, arguments.sweep, base)
    engine = load_engine(arguments)
    settings, left_out = runnable(engine, settings, lenient=methods == "all")
    outcomes = Replay(engine, trace).run([s.config for s in settings])
    rows = []
    for setting, outcome in zip(
        settings, tqdm(outcomes, total=len(settings), unit="setting", leave=False), strict=True
    ):
        row = {
            "setting": setting.label,
            "mean_acceptance_length": outcome.mean_acceptance_length,
            "nodes_per_step": outcome.nodes_per_step,
            "steps": len(outcome.committed),
            "boundary_hit_rate": sum(outcome.hits) / len(outcome.hits) if outcome.hits else None,
        }
        rows.append(row)
    was = {
        "setting": f"recorded: {recorded.method}",
        "mean_acceptance_length": trace.totals.mean_acceptance_length,
        "nodes_per_step": trace.totals.nodes_per_step,
        "steps": trace.totals.steps,
        "boundary_hit_rate": trace.totals.boundary_hit_rate,
    }
    if arguments.json:
        sys.stdout.write(orjson.dumps({"recorded": was, "rows": rows, "left_out": left_out}).decode() + "\n")
        return
    print(f"{'setting':44s} {'α':>6s} {'nodes/step':>11s} {'steps':>6s} {'hit rate':>9s}")
    for row in (was, *rows):
        hit = "–" if row["boundary_hit_rate"] is None else f"{row['boundary_hit_rate']:.0%}"
        print(
            f"{printable(str(row['setting'])):44s} {row['mean_acceptance_length']:6.2f} {row['nodes_per_step']:11.1f} "
            f"{row['steps']:6d} {hit:>9s}"
        )
    for label, reason in left_out.items():
        print(f"left out: {label} ({reason})", file=sys.stderr)
