"""The parts of ``d2sd bench`` that need torch: running settings and baselines, checking texts, and timing stages and passes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers

from d2sd.bench.baselines import make_baselines, stock_twin
from d2sd.bench.lossless import run_check, tally
from d2sd.bench.presets import PRESETS
from d2sd.bench.prompts import Prompt
from d2sd.bench.provenance import as_markdown, circumstances, provenance
from d2sd.bench.report import body, pooled, remarks, to_json, write_files, write_report
from d2sd.bench.runner import collect, make_entry, run_bench, run_count
from d2sd.bench.settings import MARGIN_REASON, BenchSetting, runnable
from d2sd.bench.shapes import LAYERS
from d2sd.bench.timings import (
    BANDWIDTH_BYTES,
    Floors,
    bandwidth,
    context_row,
    cost_rows,
    pass_rows,
    random_engine,
    ratios,
)
from d2sd.calibration.resampling import RESAMPLES
from d2sd.calibration.text import Columns, Table
from d2sd.cli.common import check_output, print_json
from d2sd.config import DecodeConfig
from d2sd.engine import Engine
from d2sd.errors import InputError
from d2sd.trace.files import make_folder
from d2sd.trace.text import printable, progress

BOOTSTRAP_SEED = 0
GPU_OUT = Path("docs/benchmarks")
FORMULA = (
    "floor = bytes ÷ bandwidth. A plain step reads the weights of the target's layers and LM head, and the target's keys and values "
    "of the context. A cycle reads these bytes, the weights of both drafters, the LM head two more times, and the drafters' keys and "
    "values of the context. The bandwidth is measured with a copy in the same run and counts bytes read and written."
)
NEEDS_GPU = "captured columns need a CUDA GPU, since they time CUDA graphs"


def compare(
    arguments: argparse.Namespace,
    engine: Engine,
    prompts: Sequence[tuple[Prompt, list[int]]],
    base: DecodeConfig,
    settings: Sequence[BenchSetting],
    baselines: Sequence[str],
    lenient: bool,
) -> int:
    """Runs settings and baselines over prompts, and prints the report. Returns the exit status.

    base: the settings on which ``settings`` are based.
    baselines: names of baselines.
    lenient: whether settings that cannot run are left out.
    """
    transformers.logging.set_verbosity_error()
    settings, left_out = runnable(engine, settings, lenient)
    entries = [make_entry(engine, setting) for setting in settings]
    if baselines:
        twin = stock_twin(engine.models.target)
        others, without = make_baselines(engine, twin, baselines, base.max_new_tokens)
        entries, left_out = entries + others, left_out | without
    seeds = {"decoding": base.seed, "bootstrap": BOOTSTRAP_SEED}
    origin = provenance(engine, arguments.argv, arguments.prompts, [p for p, _ in prompts], seeds)
    with progress(total=run_count(len(entries), len(prompts), arguments.repeats), desc="bench", unit="run") as bar:
        runs, stopped = collect(run_bench(entries, prompts, arguments.repeats, bar.update))
    if not runs:
        raise KeyboardInterrupt
    preset = PRESETS.get(arguments.preset)
    about = {
        "model": engine.models.name,
        "prompts": arguments.prompts,
        "prompts_asked": len(prompts),
        "stopped": stopped,
        "preset": arguments.preset,
        "preset_sentence": preset.sentence if preset else None,
        "left_out": left_out,
        "provenance": {**origin, "bootstrap_resamples": RESAMPLES, "repeats": arguments.repeats},
    }
    result = pooled(about, runs, entries, BOOTSTRAP_SEED)
    _print(result, body(result, arguments.by_domain), arguments.json)
    if arguments.out:  # last, so that the results are printed even if writing fails
        write_report(arguments.out, result, runs)
    return 130 if stopped else 0


def _print(result: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json(result)
    else:
        print(printable(text))


def _write(folder: Path | None, stem: str, result: dict[str, Any], text: str) -> None:
    """Writes a result as JSON and as Markdown to ``{stem}.json`` and ``{stem}.md`` in a folder. If ``folder`` is None, writes nothing."""
    if folder:
        write_files(folder, {f"{stem}.json": to_json(result), f"{stem}.md": f"{text}\n"})


# ``bench --check-lossless``: compares many settings of every method with plain greedy decoding.


def check_lossless(
    arguments: argparse.Namespace,
    engine: Engine,
    prompts: Sequence[tuple[Prompt, list[int]]],
    base: DecodeConfig,
    methods: Sequence[str],
    candidates: Sequence[BenchSetting],
) -> int:
    """Compares the texts of settings with plain decoding, and prints the result. Returns the exit status, 1 if a setting fails.

    base: the settings on which ``candidates`` are based.
    methods: ids of the methods to check.
    """
    transformers.logging.set_verbosity_error()
    settings, left_out = runnable(engine, candidates, lenient=True)
    for method in methods if arguments.methods != "all" else ():
        if method not in {s.config.method for s in settings}:
            reasons = [reason for label, reason in left_out.items() if label.split(":")[0] == method]
            none = f"{method} needs a K below γ, but every K of --branches is at least as large as every γ of --gamma"
            raise InputError(reasons[0] if reasons else none)
    seeds = {"decoding": base.seed}
    origin = provenance(engine, arguments.argv, arguments.prompts, [p for p, _ in prompts], seeds)
    plain, *others = [make_entry(engine, setting) for setting in settings]
    twin = stock_twin(engine.models.target)
    (stock,), _ = make_baselines(engine, twin, ["generate"], base.max_new_tokens)
    numbers = engine.models.target.numbers
    exact = numbers in ("float32", "mixed")
    # with mixed weights, a model run by transformers may write another text, so it is left out
    entries = [stock, *others] if numbers == "float32" else others if exact else [plain, stock, *others]
    with progress(total=len(entries) * len(prompts), desc="lossless", unit="run") as bar:
        results, stopped = collect(run_check(plain, entries, [ids for _, ids in prompts], twin, exact, bar.update))
    if not results:
        raise KeyboardInterrupt
    rows = tally(results, [entry.label for entry in entries], None if exact else arguments.margin)
    passed = all(row["passed"] for row in rows)
    result = {
        "model": engine.models.name, "prompts_asked": len(prompts),
        **dict.fromkeys(("prompts_done", "prompts_counted"), len({r.prompt for r in results})),
        "stopped": stopped, "margin": None if exact else arguments.margin, "left_out": left_out, "passed": passed,
        "rows": rows, "provenance": origin,
    }  # fmt: skip
    text = _lossless_body(result, engine.texts)
    _write(arguments.out, "lossless", result, f"{text}\n\n{as_markdown(origin)}")
    _print(result, text, arguments.json)
    return 130 if stopped else 0 if passed else 1


def _lossless_body(result: dict[str, Any], texts: Any) -> str:
    """Returns the table of settings and a verdict. texts: mapping from token ids to their texts."""
    rows, margin = result["rows"], result["margin"]
    columns: Columns[dict[str, Any]] = {
        "setting": lambda row: row["label"],
        "identical / texts": lambda row: f"{row['identical']} / {row['texts']}",
        "tokens": lambda row: f"{row['tokens']}",
        "first divergence": lambda row: _divergence(row["first_divergence"], texts),
    }
    if margin is not None:
        columns["shortfall"] = lambda row: _shortfall(row["largest_shortfall"], margin)
    rule = (
        "every text must have the same token ids as plain greedy decoding (method autoregressive)"
        if margin is None
        else f"the logit of every token must be at most {margin} below the highest logit in a teacher-forced pass; {MARGIN_REASON}"
    )
    verdict = (
        f"{sum(row['passed'] for row in rows)} of {len(rows)} settings pass on {result['prompts_done']} of "
        f"{result['prompts_asked']} prompts. To pass, {rule}."
    )
    return "\n\n".join([Table.of(columns, rows).markdown(), *remarks(result), verdict])


def _divergence(difference: dict[str, Any] | None, texts: Any) -> str:
    if difference is None:
        return "–"
    expected, got = ("end" if id is None else repr(texts[id]) for id in (difference["expected"], difference["got"]))
    gap = "" if difference["gap"] is None else f", logit gap {difference['gap']:.2g}"
    return f"prompt {difference['prompt'] + 1}, token {difference['position'] + 1}: {expected} → {got}{gap}"


def _shortfall(largest: float | None, margin: float) -> str:
    return "–" if largest is None else f"{largest:.3f}{'' if largest <= margin else ' > margin'}"


# ``bench gpu``: times of all stages and their lower bounds, on models of published shapes with random weights.


def time_stages(arguments: argparse.Namespace, config: DecodeConfig, contexts: Sequence[int]) -> int:
    """Times the stages of a cycle after each number of tokens in ``contexts``, and prints the times. Returns the exit status."""
    transformers.logging.set_verbosity_error()
    out = arguments.out or GPU_OUT
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    stem = f"gpu-{arguments.shape}-{'cuda' if device.startswith('cuda') else device}"
    make_folder(out)
    for ending in ("json", "md"):
        check_output(arguments, out / f"{stem}.{ending}")
    dtype = arguments.dtype or ("bfloat16" if device.startswith("cuda") else "float32")
    longest = contexts[-1] + config.max_new_tokens + 1024
    try:
        engine = random_engine(arguments.shape, dtype, device, arguments.passes, longest)
        result = _measure(engine, arguments, config, contexts)
    except torch.OutOfMemoryError:
        raise InputError(f"shape {arguments.shape} with {contexts[-1]} tokens does not fit into {device}") from None
    text = _gpu_body(result)
    _write(out, stem, result, text)
    _print(result, text, arguments.json)
    return 0


def _measure(
    engine: Engine, arguments: argparse.Namespace, config: DecodeConfig, contexts: Sequence[int]
) -> dict[str, Any]:
    resolved, cascade = engine.resolve(config), replace(config, backend="cascade")
    if wait := engine.first_use(resolved.backend):
        print(wait, file=sys.stderr)
    device, repeats = engine.models.target.device, arguments.repeats
    origin = circumstances(engine.models.target, arguments.argv)
    rate = bandwidth(device, repeats)
    floors = Floors.of(engine, rate)
    kinds = [arguments.layers] if arguments.layers else LAYERS
    cases = [(context, layers) for context in contexts for layers in kinds]
    rows = [context_row(engine, config, c, floors, repeats, layers) for c, layers in progress(cases, desc="contexts")]
    uncaptured = any(row["plain_captured_ms"] is None for row in rows)
    return {
        "shape": arguments.shape,
        "weights": "random",
        "method": config.method,
        "block_size": resolved.block_size,
        "num_branches": config.num_branches,
        "repeats": repeats,
        "rows": rows,
        "without_capture": (NEEDS_GPU if device.type != "cuda" else "passes were not captured") if uncaptured else None,
        "ratios": ratios(rows),
        "cascade": []
        if resolved.backend == "cascade"
        else [context_row(engine, cascade, context, floors, repeats, kinds[0]) for context in contexts],
        "costs": {"context": contexts[0], "rows": cost_rows(engine, config, contexts[0], repeats, kinds[0])},
        "floor": {"formula": FORMULA, "bytes_per_second": rate, "copied_bytes": BANDWIDTH_BYTES[device.type]},
        "provenance": {**origin, "device": origin["hardware"]["device"]},
    }


def _gpu_body(result: dict[str, Any]) -> str:
    rows, costs = result["rows"], result["costs"]
    parts = [
        f"# Stage times: {result['shape']} on {result['provenance']['device']}",
        f"Random weights, {result['method']} with γ = {result['block_size']} and K = {result['num_branches']}, "
        f"medians of {result['repeats']} runs; a dash means not measured. Cycles and steps of plain decoding include "
        "everything that a generation does in a step, including events. Random drafts are rejected, so a cycle commits one "
        "token. A cycle that runs on the device moves the cache rows of a whole block, even if fewer tokens are accepted.",
        _table(rows),
        f"{FORMULA} Measured: {result['floor']['bytes_per_second'] / 1e9:.1f} GB/s.",
    ]
    if result["without_capture"]:
        parts.append(f"No captured figures: {result['without_capture']}.")
    if result["ratios"]:
        parts += ["## Ratios of times: the models' own modules ÷ fused layers", _table(result["ratios"])]
    if result["cascade"]:
        parts += ["## Stage times with the attention backend `cascade` (plain torch)", _table(result["cascade"])]
    parts += [f"## Costs after {costs['context']} tokens", _table(costs["rows"])]
    return "\n\n".join([*parts, as_markdown(result["provenance"])])


# ``bench cpu``: times of passes, and of their matrix products alone.


def time_passes(arguments: argparse.Namespace, engine: Engine, config: DecodeConfig, context: int) -> int:
    """Times the passes of an engine after ``context`` tokens, and prints the times. Returns the exit status."""
    rows = pass_rows(engine, config, context, arguments.repeats)
    origin = circumstances(engine.models.target, arguments.argv)
    result = {
        "model": engine.models.name,
        "context": context,
        "repeats": arguments.repeats,
        "rows": rows,
        "provenance": origin,
    }
    head = (
        f"# Passes of {engine.models.name} on a CPU",
        f"Times after {context} tokens, medians of {arguments.repeats} runs. floor: time of the matrix products alone, measured alternately with the pass.",
    )
    text = "\n\n".join([*head, _table(rows), as_markdown(origin)])
    _write(arguments.out, "cpu", result, text)
    _print(result, text, arguments.json)
    return 0


def _table(rows: list[dict[str, Any]]) -> str:
    """Returns a Markdown table of these rows, with a column for every name that occurs in a row."""

    def cell(value: Any) -> str:
        return "–" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)

    names = dict.fromkeys(name for row in rows for name in row)
    cells = tuple(tuple(cell(row.get(name)) for name in names) for row in rows)
    return Table(tuple(name.replace("_", " ") for name in names), cells).markdown()
