"""Compare methods on a prompt file: acceptance, speed, nodes, stage times, and whether the text is the same."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import orjson
from tqdm.auto import tqdm

from d2sd.bench.prompts import read_prompts
from d2sd.bench.runner import run_bench, summarise
from d2sd.cli.common import add_decode_arguments, add_model_arguments, decode_config, load_engine, printable
from d2sd.errors import InputError
from d2sd.methods import METHODS

HELP = "compare methods on a prompt file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``bench``."""
    parser.add_argument(
        "--methods", default="autoregressive,dflash,d2sd", metavar="A,B,…", help=f"of {', '.join(METHODS)}, or all"
    )
    parser.add_argument("--prompts", default="heldout", metavar="NAME|FILE.jsonl", help="lines with prompt or turns")
    parser.add_argument("--limit", type=int, metavar="N", help="use only N prompts, taken from every domain in turn")
    parser.add_argument("--by-domain", action="store_true", help="also one row per method and domain")
    add_model_arguments(parser)
    add_decode_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> None:
    """Run and print one row per method."""
    if arguments.limit is not None and arguments.limit < 1:
        raise InputError(f"limit must be at least 1, not {arguments.limit}")
    methods = (
        list(METHODS)
        if arguments.methods == "all"
        else list(dict.fromkeys(m.strip() for m in arguments.methods.split(",")))
    )
    configs = [decode_config(arguments, m, inspect=False) for m in methods]
    prompts = read_prompts(arguments.prompts, arguments.limit)
    engine = load_engine(arguments)
    configs = [engine.resolve(c) for c in configs]
    for prompt in prompts:
        engine.encode(prompt.text, configs[0])
    with tqdm(total=len(prompts), desc="bench", unit="prompt", file=sys.stderr) as bar:
        runs = run_bench(engine, configs, prompts, lambda done: bar.update(done - bar.n))
    result: dict[str, Any] = {"model": engine.name, "prompts": arguments.prompts, "rows": summarise(runs, methods)}
    domains = sorted({r.domain for r in runs})
    if arguments.by_domain:
        result["by_domain"] = {d: summarise([r for r in runs if r.domain == d], methods) for d in domains}
    if arguments.json:
        sys.stdout.write(orjson.dumps(result).decode() + "\n")
        return
    print(table(result["rows"]))
    for domain, rows in result.get("by_domain", {}).items():
        print(printable(f"\n{domain}\n{table(rows)}"))


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    head = [
        "method",
        "α",
        "95%",
        "tokens/s",
        "speedup",
        "nodes/step",
        "hit rate",
        "ECE",
        "ms/step draft 1 · draft 2 · tree · verify · commit",
        "identical",
    ]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        low, high = row["mean_acceptance_length_interval"]
        stages = " · ".join(f"{1e3 * s:.2f}" for s in row["seconds_per_step"].values())
        lines.append([
            row["method"], f"{row['mean_acceptance_length']:.2f}", f"{low:.2f}–{high:.2f}",
            f"{row['tokens_per_second']:.0f}", _text(row["speedup"], "{:.2f}"), f"{row['nodes_per_step']:.1f}",
            _text(row["boundary_hit_rate"], "{:.0%}"), _text(row["expected_calibration_error"], "{:.3f}"), stages,
            _text(row["identical"], "{:.0%}"),
        ])  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _text(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)
