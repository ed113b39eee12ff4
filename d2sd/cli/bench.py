"""Compare settings on a prompt set: acceptance, speed, nodes, stage times, and whether all settings write the same texts.

Every prompt is run with all settings in turn. After Ctrl-C, the report covers the finished prompts. With --check-lossless, nothing is
timed: every text is compared with plain greedy decoding (in bfloat16 and float16 within a margin, else id for id), and the exit code
is 1 if a setting fails. "bench gpu" times the stages of a cycle with random weights, "bench cpu" times the passes of --model.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from d2sd.bench.presets import PRESETS
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
)
from d2sd.bench.shapes import LAYERS, SHAPES
from d2sd.cli.common import add_output, add_run_arguments, check_folder, decode_config, load_engine, prepare_engine
from d2sd.config import DTYPE_NAMES, PASSES, check_choice, check_device
from d2sd.errors import InputError
from d2sd.methods import METHODS

GPU_CONTEXTS = (1024, 8192, 32768)
CPU_CONTEXT = (128,)
GPU_REPEATS = 20


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
    parser.add_argument(
        "--sweep", action="append", default=[], metavar="FIELD=A,B,…",
        help="for each value, run every method that uses the field; for example K=1,2,4,8; may be repeated",
    )  # fmt: skip
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
    return tuple(int(part) for part in text.split(","))


def run(arguments: argparse.Namespace) -> int:
    """Runs the benchmark and prints its results. Returns the exit status."""
    arguments.repeats = (GPU_REPEATS if arguments.what else 1) if arguments.repeats is None else arguments.repeats
    if arguments.repeats < 1:
        raise InputError(f"repeats must be at least 1, not {arguments.repeats}")
    if arguments.what:
        return (_run_gpu if arguments.what == "gpu" else _run_cpu)(arguments)
    if arguments.out:
        check_folder(arguments.out)
    return (_run_lossless if arguments.check_lossless else _run_bench)(arguments)


# The kinds of benchmarks. Each function checks its arguments before it imports d2sd.cli.benchmarks, which imports torch.


def _run_bench(arguments: argparse.Namespace) -> int:
    base = decode_config(arguments, "autoregressive", inspect=False)
    preset = PRESETS.get(arguments.preset)
    methods = ",".join(preset.methods) if preset else arguments.methods
    settings = parse_settings(methods, arguments.sweep, base)
    if base.temperature > 0 and arguments.baselines:
        raise InputError("the baselines decode greedily; leave out --baselines or set the temperature to 0")
    baselines, lenient = parse_baselines(arguments.baselines), preset is not None or methods == "all"
    engine, prompts = prepare_engine(arguments, base, *(() if lenient else (setting.config for setting in settings)))
    from d2sd.cli.benchmarks import compare

    return compare(arguments, engine, prompts, base, settings, baselines, lenient)


def _run_lossless(arguments: argparse.Namespace) -> int:
    base = decode_config(arguments, "autoregressive", inspect=False)
    if base.temperature > 0:
        raise InputError("--check-lossless compares greedy texts; leave out --temperature")
    if arguments.preset or arguments.sweep or arguments.baselines:
        raise InputError("--check-lossless chooses its own settings; leave out --preset, --sweep and --baselines")
    methods = list(METHODS) if arguments.methods == "all" else [m.strip() for m in arguments.methods.split(",")]
    candidates = grid(["autoregressive", *methods], arguments.gamma, arguments.branches, base)
    engine, prompts = prepare_engine(arguments, base)
    from d2sd.cli.benchmarks import check_lossless

    return check_lossless(arguments, engine, prompts, base, methods, candidates)


def _run_gpu(arguments: argparse.Namespace) -> int:
    contexts = sorted(arguments.context or GPU_CONTEXTS)
    if contexts[0] < 1:
        raise InputError("contexts must be at least 1 token")
    check_choice("shape", arguments.shape, SHAPES)
    check_choice("kind of passes", arguments.passes, PASSES)
    if arguments.dtype:
        check_choice("dtype", arguments.dtype, DTYPE_NAMES)
    if arguments.device:
        check_device(arguments.device)
    config = decode_config(arguments, "d2sd", inspect=True)
    from d2sd.cli.benchmarks import time_stages

    return time_stages(arguments, config, contexts)


def _run_cpu(arguments: argparse.Namespace) -> int:
    contexts = arguments.context or CPU_CONTEXT
    if len(contexts) != 1 or contexts[0] < 1:
        raise InputError("bench cpu takes one context of at least 1 token")
    if arguments.out:
        check_folder(arguments.out)
    config = decode_config(arguments, "dflash", inspect=False)
    engine = load_engine(arguments, config)
    from d2sd.cli.benchmarks import time_passes

    return time_passes(arguments, engine, config, contexts[0])
