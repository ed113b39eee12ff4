"""Compare settings on a prompt file: acceptance, speed, nodes, stage times, and whether the text is the same.

All settings take turns on every prompt. Ctrl-C reports the prompts done so far. Under ``accelerate launch -m d2sd
bench …`` the prompts are split among the processes, on one machine or several. With --check-lossless, every method is
compared with plain greedy decoding instead (float32: id for id; bfloat16: within a margin), and the exit code is 1 if
one fails. ``bench gpu`` measures the stages of a cycle on models of a true shape with random weights.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import transformers

from d2sd.bench.baselines import BASELINES, make_baselines, stock_twin
from d2sd.bench.calculated import Calculator
from d2sd.bench.presets import PRESETS
from d2sd.bench.processes import Processes
from d2sd.bench.provenance import provenance
from d2sd.bench.report import body, write_files, write_report
from d2sd.bench.runner import Run, entry, run_bench, run_count
from d2sd.bench.settings import SYNTAX, parse_settings, runnable
from d2sd.bench.summary import pooled
from d2sd.calibration.resampling import RESAMPLES
from d2sd.cli import bench_gpu, lossless
from d2sd.cli.common import add_run_arguments, decode_config, prepare
from d2sd.costs.machines import MACHINES, machine_of
from d2sd.errors import InputError
from d2sd.methods import METHODS
from d2sd.trace.text import printable

BOOTSTRAP_SEED = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``bench``."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--methods", default="autoregressive,dflash,d2sd", metavar="A,B,…", help=f"all, or a list. Each entry: {SYNTAX} "
        f"Methods: {', '.join(METHODS)}"
    )  # fmt: skip
    which.add_argument(
        "--preset", choices=PRESETS, help="a table of a paper, beside its published figures: "
        + "; ".join(f"{name}: {p.sentence}" for name, p in PRESETS.items())
    )  # fmt: skip
    parser.add_argument(
        "--sweep", action="append", default=[], metavar="FIELD=A,B,…",
        help="run every method that uses the field with each of the values, such as K=1,2,4,8; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--baselines", default="", metavar="A,B,…",
        help="all, or some of: " + "; ".join(f"{name}: {sentence}" for name, sentence in BASELINES.items()),
    )  # fmt: skip
    parser.add_argument("--repeats", type=int, metavar="N", help="runs per prompt (default 1); times are their medians")
    parser.add_argument(
        "--costs", metavar="MACHINE", help="calculate times instead of timing: the text of plain decoding is replayed with "
        f"every setting; one of: {', '.join(MACHINES)}"
    )  # fmt: skip
    parser.add_argument("--by-domain", action="store_true", help="also one row per method and domain")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write results.json, report.md and report.html there"
    )
    lossless.add_arguments(parser)
    bench_gpu.add_arguments(parser)
    add_run_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run and print one row per setting."""
    transformers.logging.set_verbosity_error()
    arguments.repeats = (bench_gpu.REPEATS if arguments.what else 1) if arguments.repeats is None else arguments.repeats
    if arguments.repeats < 1:
        raise InputError(f"repeats must be at least 1, not {arguments.repeats}")
    if arguments.what:
        return bench_gpu.run(arguments)
    processes = Processes.launched()
    if arguments.out and processes.main:
        write_files(arguments.out, {})
    if arguments.check_lossless:
        return lossless.run(arguments, processes)
    base = decode_config(arguments, "autoregressive", inspect=False)
    preset = PRESETS.get(arguments.preset)
    methods = ",".join(preset.methods) if preset else arguments.methods
    settings = parse_settings(methods, arguments.sweep, base)
    if (arguments.baselines or arguments.costs) and base.temperature > 0:
        what = "the baselines decode greedily" if arguments.baselines else "times are calculated for greedy decoding"
        raise InputError(
            f"{what}; leave out --{'baselines' if arguments.baselines else 'costs'} or set the temperature to 0"
        )
    if arguments.baselines and arguments.costs:
        raise InputError("the times of baselines cannot be calculated; leave out --baselines or --costs")
    costs = machine_of(arguments.costs) if arguments.costs else None
    engine, prompts = prepare(arguments, base, processes.device)
    settings, left_out = runnable(engine, settings, lenient=preset is not None or methods == "all")
    made = partial(entry, engine) if costs is None else Calculator(engine, base, costs).entry
    entries = [made(s) for s in settings]
    if arguments.baselines:
        names = list(BASELINES) if arguments.baselines == "all" else [p.strip() for p in arguments.baselines.split(",")]
        baselines, without = make_baselines(engine, stock_twin(engine.models.target), names, base.max_new_tokens)
        entries, left_out = entries + baselines, left_out | without
    seeds = {"decoding": base.seed, "bootstrap": BOOTSTRAP_SEED}
    origin = provenance(
        engine, arguments.argv, arguments.prompts, [prompt for prompt, _ in prompts], seeds, processes.count
    )
    mine = processes.share([(number, prompt, ids) for number, (prompt, ids) in enumerate(prompts)])
    runs, stopped = processes.collect(
        lambda progress: run_bench(entries, mine, arguments.repeats, progress),
        run_count(len(entries), len(mine), arguments.repeats),
        "bench",
    )
    if not processes.main:
        return 130 if stopped else 0
    if not runs:
        raise KeyboardInterrupt
    about = {
        "model": engine.models.name,
        "prompts": arguments.prompts,
        "prompts_asked": len(prompts),
        "stopped": stopped,
        "preset": arguments.preset,
        "preset_sentence": preset.sentence if preset else None,
        "left_out": left_out,
        "calculated": costs and costs.to_dict(),
        "provenance": {**origin, "bootstrap_resamples": RESAMPLES, "repeats": arguments.repeats},
    }
    return _report(arguments, pooled(about, runs, entries, BOOTSTRAP_SEED), runs)


def _report(arguments: argparse.Namespace, result: dict[str, Any], runs: Sequence[Run]) -> int:
    """Print the result, and write it where a folder is named."""
    preset = PRESETS.get(result["preset"])
    published = preset.published if preset else None
    if arguments.json:
        sys.stdout.write(orjson.dumps(result).decode() + "\n")
    else:
        print(printable(body(result, arguments.by_domain, published)))
    if arguments.out:  # last: what was measured is on the screen, whatever has become of the folder
        write_report(arguments.out, result, runs, published)
    return 130 if result["stopped"] else 0
