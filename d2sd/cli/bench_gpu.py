"""``bench gpu``: time of every stage beside its roofline, on models of a true shape with random weights."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import torch

from d2sd.bench.provenance import as_markdown, circumstances
from d2sd.bench.random_models import SHAPES, random_engine
from d2sd.bench.report import markdown_table, to_json, write_files
from d2sd.bench.stages import BANDWIDTH_BYTES, Floors, bandwidth, context_row, cost_rows, merging_row
from d2sd.cli.common import decode_config
from d2sd.cli.lossless import whole_numbers
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.trace.text import printable, progress

OUT = Path("docs/benchmarks")
REPEATS = 20
FORMULA = (
    "floor = bytes ÷ bandwidth. Bytes of a plain step: the target's weights without the embedding table, its LM head, "
    "and its keys and values of the context. Bytes of a cycle: those, both drafters' weights, the LM head twice more, "
    "and the drafters' keys and values of the context. The bandwidth is that of a copy measured in the same run, bytes "
    "read and written counted."
)
NEEDS_GPU = "captured columns need a CUDA GPU: CUDA graphs do not exist elsewhere"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``bench gpu``."""
    parser.add_argument(
        "what", nargs="?", choices=("gpu",), help="gpu: time of every stage beside its floor, with random weights of a "
        "true shape (uses --shape, --context, --repeats, --dtype, --device, --passes, --backend, --out, --json only)"
    )  # fmt: skip
    parser.add_argument("--shape", default="qwen3-8b", metavar="NAME", help=f"bench gpu: {', '.join(SHAPES)}")
    parser.add_argument(
        "--context", type=whole_numbers, default=(1024, 8192, 32768), metavar="A,B,…", help="bench gpu: tokens"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure, write JSON and Markdown, print the Markdown."""
    out, contexts = arguments.out or OUT, sorted(arguments.context)
    if not contexts or contexts[0] < 1:
        raise InputError("contexts must be at least 1 token")
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    write_files(out, {})
    config = decode_config(arguments, "d2sd", inspect=True)
    dtype = arguments.dtype or ("bfloat16" if device.startswith("cuda") else "float32")
    longest = contexts[-1] + config.max_new_tokens + 1024
    try:
        engine = random_engine(arguments.shape, dtype, device, arguments.passes, longest)
        result = measure(engine, arguments, contexts)
    except torch.OutOfMemoryError:
        raise InputError(f"shape {arguments.shape} with {contexts[-1]} tokens does not fit into {device}") from None
    text = body(result)
    stem = f"gpu-{arguments.shape}-{'cuda' if device.startswith('cuda') else device}"
    write_files(out, {f"{stem}.json": to_json(result), f"{stem}.md": text + "\n"})
    print(orjson.dumps(result).decode() if arguments.json else printable(text))
    return 0


def measure(engine: Engine, arguments: argparse.Namespace, contexts: list[int]) -> dict[str, Any]:
    """All rows with their provenance."""
    config = decode_config(arguments, "d2sd", inspect=True)
    if wait := engine.first_use(engine.resolve(config).backend):
        print(wait, file=sys.stderr)
    device, repeats = engine.models.target.device, arguments.repeats
    origin = circumstances(engine.models.target, arguments.argv)
    rate = bandwidth(device, repeats)
    floors = Floors.of(engine, rate)
    rows = [context_row(engine, config, c, floors, repeats) for c in progress(contexts, desc="contexts")]
    backends = dict.fromkeys((engine.resolve(config).backend, "cascade"))
    others = [replace(config, backend=name) for name in backends]
    uncaptured = any(row["plain_captured_ms"] is None for row in rows)
    return {
        "shape": arguments.shape,
        "weights": "random",
        "method": config.method,
        "block_size": engine.resolve(config).block_size,
        "num_branches": config.num_branches,
        "repeats": repeats,
        "rows": rows,
        "without_capture": (NEEDS_GPU if device.type != "cuda" else "passes were not captured") if uncaptured else None,
        "cascade": [context_row(engine, c, n, floors, repeats) for c in others[1:] for n in contexts],
        "merging": [merging_row(engine, c, n, repeats) for c in others for n in contexts],
        "costs": {"context": contexts[0], "rows": cost_rows(engine, config, contexts[0], repeats)},
        "floor": {"formula": FORMULA, "bytes_per_second": rate, "copied_bytes": BANDWIDTH_BYTES[device.type]},
        "provenance": {**origin, "device": origin["hardware"]["device"]},
    }


def body(result: dict[str, Any]) -> str:
    """The tables as Markdown."""
    rows = result["rows"]
    costs = result["costs"]
    names = list(dict.fromkeys(name for row in costs["rows"] for name in row))
    parts = [
        f"# Stage times: {result['shape']} on {result['provenance']['device']}",
        f"Random weights, {result['method']} with γ = {result['block_size']} and K = {result['num_branches']}, "
        f"medians of {result['repeats']}; a dash was not measured. A cycle, and a step of plain decoding, is all that a "
        "step of a generation does, its events included. Random drafts are rejected, so a cycle commits one token. "
        "Cycles worked out on the device move the rows of a whole block whatever is accepted.",
        _table(list(rows[0]), rows),
        f"{FORMULA} Measured: {result['floor']['bytes_per_second'] / 1e9:.1f} GB/s.",
    ]
    if result["without_capture"]:
        parts.append(f"No captured figures: {result['without_capture']}.")
    if result["cascade"]:
        parts += ["## The same with the cascade in plain torch", _table(list(rows[0]), result["cascade"])]
    parts += [
        "## Verification with candidates merged and side by side",
        "The candidates of the median proposal of a text of the bundled nets: random ones share too little.",
        _table(list(result["merging"][0]), result["merging"]),
    ]
    parts += [f"## Costs after {costs['context']} tokens", _table(names, costs["rows"])]
    return "\n\n".join([*parts, as_markdown(result["provenance"])])


def _table(names: list[str], rows: list[dict[str, Any]]) -> str:
    def cell(value: Any) -> str:
        return "–" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)

    return markdown_table([n.replace("_", " ") for n in names], [[cell(row.get(n)) for n in names] for row in rows])
