"""Compare settings on a prompt set: acceptance, speed, nodes, stage times, and whether all settings write the same texts.

Every prompt is run with all settings in turn. After Ctrl-C, the report covers the finished prompts. With --check-lossless, nothing is
timed: every text is compared with plain greedy decoding (in bfloat16 and float16 within a margin, else id for id), and the exit code
is 1 if a setting fails. "bench gpu" times the stages of a cycle with random weights, "bench cpu" times the passes of --model.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d2sd.bench.presets import PRESETS
from d2sd.bench.provenance import as_markdown, circumstances, provenance
from d2sd.bench.report import body, pooled, remarks, to_json, write_files, write_report
from d2sd.bench.runner import collect, make_entry, run_bench, run_count
from d2sd.bench.settings import (
    BASELINES,
    BRANCHES,
    DEFAULT_MARGIN,
    GAMMAS,
    MARGIN_REASON,
    SYNTAX,
    grid,
    parse_baselines,
    parse_settings,
    runnable,
)
from d2sd.bench.shapes import LAYERS, SHAPES
from d2sd.calibration.resampling import RESAMPLES
from d2sd.calibration.text import Columns, Table
from d2sd.cli.common import (
    add_run_arguments,
    add_sweep_argument,
    decode_config,
    load_engine,
    prepare_engine,
    print_json,
)
from d2sd.cli.outputs import add_output, check_folder, check_output, lock_output
from d2sd.config import DTYPE_NAMES, PASSES, DecodeConfig, check_choice, check_device
from d2sd.errors import InputError, require
from d2sd.methods import METHODS
from d2sd.trace.files import make_folder
from d2sd.trace.text import printable, progress

if TYPE_CHECKING:
    from d2sd.engine import Engine

# Modules that import torch are imported by the functions that use them, after all arguments are checked.
BOOTSTRAP_SEED = 0
GPU_OUT = Path("docs/benchmarks")
GPU_CONTEXTS = (1024, 8192, 32768)
CPU_CONTEXT = (128,)
GPU_REPEATS = 20
FORMULA = (
    "floor = bytes ÷ bandwidth. A one-token pass reads the weights of the target's layers and LM head, and the target's keys and values "
    "of the context. A cycle reads these bytes, the weights of both drafters, the LM head two more times, and the drafters' keys and "
    "values of the context. The bandwidth is measured with a copy in the same run and counts bytes read and written."
)
NEEDS_GPU = "captured columns need a CUDA GPU, since they time CUDA graphs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--methods", default="autoregressive,dflash,d2sd", metavar="A,B,…", help=f"methods to compare: all, or a list. Each entry is {SYNTAX} "
        f"Methods: {', '.join(METHODS)}"
    )  # fmt: skip
    which.add_argument(
        "--preset", choices=PRESETS, help="predefined comparison; also shows published figures if there are any. Names: "
        + "; ".join(f"{name}: {p.sentence}" for name, p in PRESETS.items())
    )  # fmt: skip
    add_sweep_argument(parser, "run")
    parser.add_argument(
        "--baselines", default="", metavar="A,B,…",
        help="other implementations to compare with: all, or a list of: " + "; ".join(f"{name}: {sentence}" for name, sentence in BASELINES.items()),
    )  # fmt: skip
    parser.add_argument("--repeats", type=int, metavar="N", help="number of runs per prompt; median times are reported (default: 1; for `bench gpu` and `bench cpu`: 20)")  # fmt: skip
    parser.add_argument("--by-domain", action="store_true", help="also show a row per method and domain")
    add_output(parser, "--out", folder=True, type=Path, metavar="FOLDER", help="also write results.json, report.md and report.html to this folder")  # fmt: skip
    parser.add_argument("--check-lossless", action="store_true", help="compare all texts with plain decoding instead of timing")  # fmt: skip
    lists = {"gamma": (GAMMAS, "γ"), "branches": (BRANCHES, "K, each combined with every larger γ")}
    for name, (default, sentence) in lists.items():
        parser.add_argument(
            f"--{name}", type=_whole_numbers, default=default, metavar="A,B,…",
            help=f"for --check-lossless: values of {sentence} (default: {','.join(map(str, default))})",
        )  # fmt: skip
    parser.add_argument(
        "--margin", type=float, default=DEFAULT_MARGIN, metavar="X",
        help=f"for --check-lossless in bfloat16 and float16: how far the logit of a token may be below the highest logit "
        f"(default: {DEFAULT_MARGIN}); {MARGIN_REASON}",
    )  # fmt: skip
    parser.add_argument(
        "what", nargs="?", choices=("gpu", "cpu"), help="gpu: with random weights, measure the time of every stage and a lower bound "
        "(uses only --shape, --context, --layers, --repeats, --dtype, --device, --passes, --backend, --out, --json); cpu: for every "
        "pass of --model, measure the time, the number of operations, and the time of the matrix products alone (takes one --context)"
    )  # fmt: skip
    parser.add_argument("--shape", default="qwen3-8b", metavar="NAME", help=f"for gpu: shape of the models, one of: {', '.join(SHAPES)} (default: qwen3-8b)")  # fmt: skip
    parser.add_argument(
        "--context",
        type=_whole_numbers,
        metavar="A,B,…",
        help="for gpu and cpu: number of tokens before the measured passes (default for gpu: 1024,8192,32768; for cpu: 128)",
    )
    parser.add_argument(
        "--layers", choices=LAYERS, help="for gpu: fused (merged weights, few kernels) or plain (the models' own modules); "
        "default: both, and the ratio of their times"
    )  # fmt: skip
    add_run_arguments(parser)


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers, such as 2,5,16") from None


def run(arguments: argparse.Namespace) -> int:
    """Runs the benchmark and prints its results. Returns the exit status."""
    arguments.repeats = (GPU_REPEATS if arguments.what else 1) if arguments.repeats is None else arguments.repeats
    require(arguments.repeats >= 1, f"repeats must be at least 1, not {arguments.repeats}")
    if arguments.what:
        return (_run_gpu if arguments.what == "gpu" else _run_cpu)(arguments)
    if arguments.out:
        check_folder(arguments.out)
    if arguments.check_lossless:
        return _run_lossless(arguments)
    return _run_bench(arguments)


def _run_bench(arguments: argparse.Namespace) -> int:
    base = decode_config(arguments, "autoregressive", inspect=False)
    preset = PRESETS.get(arguments.preset)
    methods = ",".join(preset.methods) if preset else arguments.methods
    settings = parse_settings(methods, arguments.sweep, base)
    if base.temperature > 0 and arguments.baselines:
        raise InputError("the baselines decode greedily; leave out --baselines or set the temperature to 0")
    names, lenient = parse_baselines(arguments.baselines), preset is not None or methods == "all"
    engine, prompts = prepare_engine(arguments, base, *(() if lenient else (setting.config for setting in settings)))
    settings, left_out = runnable(engine, settings, lenient)
    entries = [make_entry(engine, setting) for setting in settings]
    if names:
        from d2sd.bench.baselines import make_baselines, stock_twin

        baselines, without = make_baselines(engine, stock_twin(engine.models.target), names, base.max_new_tokens)
        entries, left_out = entries + baselines, left_out | without
    seeds = {"decoding": base.seed, "bootstrap": BOOTSTRAP_SEED}
    origin = provenance(engine, arguments.argv, arguments.prompts, prompts, seeds)
    with progress(total=run_count(len(entries), len(prompts), arguments.repeats), desc="bench", unit="run") as bar:
        runs, stopped = collect(run_bench(entries, prompts, arguments.repeats, bar.update))
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


def _run_lossless(arguments: argparse.Namespace) -> int:
    base = decode_config(arguments, "autoregressive", inspect=False)
    if base.temperature > 0:
        raise InputError("--check-lossless compares greedy texts; leave out --temperature")
    if arguments.preset or arguments.sweep or arguments.baselines:
        raise InputError("--check-lossless chooses its own settings; leave out --preset, --sweep and --baselines")
    methods = list(METHODS) if arguments.methods == "all" else [m.strip() for m in arguments.methods.split(",")]
    candidates = grid(["autoregressive", *methods], arguments.gamma, arguments.branches, base)
    named = [] if arguments.methods == "all" else methods
    for method in named:
        fault = f"{method} needs a K below γ, but every K of --branches is at least as large as every γ of --gamma"
        require(method in {setting.config.method for setting in candidates}, fault)
    smallest = [replace(base, method=method, block_size=None, num_branches=1) for method in named]
    engine, prompts = prepare_engine(arguments, base, *smallest)
    settings, left_out = runnable(engine, candidates, lenient=True)
    for method in named:
        if method not in {s.config.method for s in settings}:
            raise InputError(next(reason for label, reason in left_out.items() if label.split(":")[0] == method))
    from d2sd.bench.baselines import make_baselines, stock_twin
    from d2sd.bench.lossless import run_check, tally

    origin = provenance(engine, arguments.argv, arguments.prompts, prompts, {"decoding": base.seed})
    plain, *others = [make_entry(engine, setting) for setting in settings]
    twin = stock_twin(engine.models.target)
    (stock,), _ = make_baselines(engine, twin, ["generate"], base.max_new_tokens)
    numbers = engine.models.target.numbers
    exact = numbers in ("float32", "mixed")
    # with mixed weights, a model run by transformers may write another text, so it is left out
    entries = [stock, *others] if numbers == "float32" else others if exact else [plain, stock, *others]
    with progress(total=len(entries) * len(prompts), desc="lossless", unit="run") as bar:
        results, stopped = collect(run_check(plain, entries, [ids for _, ids in prompts], twin, exact, bar.update))
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
        columns["shortfall"] = lambda row: f"{row['largest_shortfall']:.3f}{'' if row['passed'] else ' > margin'}"
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


# ``bench gpu``: times of all stages and their lower bounds, on models of published shapes with random weights.


def _run_gpu(arguments: argparse.Namespace) -> int:
    out, contexts = arguments.out or GPU_OUT, sorted(arguments.context or GPU_CONTEXTS)
    require(contexts[0] >= 1, "contexts must be at least 1 token")
    check_choice("shape", arguments.shape, SHAPES)
    check_choice("kind of passes", arguments.passes, PASSES)
    check_choice("dtype", arguments.dtype or "float32", DTYPE_NAMES)
    check_device(arguments.device or "cpu")
    config = decode_config(arguments, "d2sd", inspect=True)
    import torch

    from d2sd.bench.timings import random_engine

    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    stem = f"gpu-{arguments.shape}-{'cuda' if device.startswith('cuda') else device}"
    if not arguments.out:
        lock_output(arguments, out)
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
    engine: Engine, arguments: argparse.Namespace, config: DecodeConfig, contexts: list[int]
) -> dict[str, Any]:
    from d2sd.bench.timings import BANDWIDTH_BYTES, Floors, bandwidth, context_row, cost_rows, ratios

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
        "everything that a generation does in a step, including events. Random drafts are rejected, so a cycle writes one "
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


def _run_cpu(arguments: argparse.Namespace) -> int:
    contexts = arguments.context or CPU_CONTEXT
    require(len(contexts) == 1 and contexts[0] >= 1, "bench cpu takes one context of at least 1 token")
    if arguments.out:
        check_folder(arguments.out)
    config = decode_config(arguments, "dflash", inspect=False)
    engine = load_engine(arguments, config)
    from d2sd.bench.timings import pass_rows

    rows = pass_rows(engine, config, contexts[0], arguments.repeats)
    origin = circumstances(engine.models.target, arguments.argv)
    result = {
        "model": engine.models.name,
        "context": contexts[0],
        "repeats": arguments.repeats,
        "rows": rows,
        "provenance": origin,
    }
    head = (
        f"# Passes of {engine.models.name} on a CPU",
        f"Times after {contexts[0]} tokens, medians of {arguments.repeats} runs. floor: time of the matrix products alone, measured alternately with the pass.",
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
