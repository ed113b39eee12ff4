"""Find out why a drafter's tokens are rejected: check the drafter's folder, and measure what single changes bring.

docs/acceptance.md explains the report. The exit status is 3 if the report names a fault, 2 if the input is invalid or the
examination could not be finished, and 1 if the program failed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from d2sd.bench.prompts import read_prompts
from d2sd.cli.common import (
    FAULT_NAMED,
    add_flag,
    add_number_arguments,
    add_prompt_arguments,
    naming,
    print_json,
    write_report,
)
from d2sd.cli.outputs import add_output
from d2sd.config import DTYPE_NAMES, DecodeConfig, check_choice
from d2sd.doctor.asked import PROMPTS, Asked
from d2sd.errors import InputError, require
from d2sd.folders.configs import check_reachable
from d2sd.folders.model_sets import check_models, resolve
from d2sd.logs import import_log, sources_of
from d2sd.logs.sentences import answers, as_dict, names_fault, report_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", nargs="?", metavar="TARGET", help="folder, hub id, GGUF file, bundled preset, or a name from `d2sd get`")  # fmt: skip
    parser.add_argument("drafter", nargs="?", metavar="DRAFTER", help="folder or hub id of the drafter to examine")
    parser.add_argument(
        "--log",
        action="append",
        metavar="FILE",
        help="examine a server's log instead of models; if FILE is -, standard input is read until it ends or Ctrl-C is pressed; may be "
        "repeated to compare logs, such as one with and one without drafts",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON and nothing else")
    parser.add_argument("--config-only", action="store_true", help="read only the two configs, and print whether the pair would run and how much memory it needs")  # fmt: skip
    parser.add_argument("--vp", metavar="DRAFTER", help="also examine this VP-Drafter, as second drafter")
    add_prompt_arguments(parser, default_limit="30")
    add_flag(parser, "--chat")
    add_number_arguments(parser)
    parser.add_argument("--thinking", action="store_true", help="with --chat: let the model think first (Qwen3)")
    parser.add_argument("--expect", type=float, metavar="ALPHA", help="known α of the drafter on these prompts; a significantly lower α is reported as a fault")  # fmt: skip
    parser.add_argument("--reference", metavar="DRAFTER", help="drafter that is known to be good, such as the one before a conversion; parts are exchanged to find the faulty ones")  # fmt: skip
    parser.add_argument("--vp-reference", metavar="DRAFTER", help="the same for the drafter of --vp")
    parser.add_argument("--full", action="store_true", help="list every change that was tried, not only the best ones")  # fmt: skip
    add_output(parser, "--out", type=Path, metavar="FILE.md", help="also write the report to this file, as Markdown")
    add_output(parser, "--mend", folder=True, type=Path, metavar="FOLDER", help="write a copy of DRAFTER without the proved fault to this new folder, if the copy drafts as measured")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Reads logs, checks a pair's configs, or examines drafters, depending on the arguments. Returns the exit status."""
    if arguments.json and arguments.config_only:
        raise InputError("--config-only has no JSON output: leave out --config-only or --json")
    if arguments.log:
        return _read_logs(arguments)
    require(arguments.drafter, "name a target and its drafter, or a server's log with --log")
    check_choice("dtype", arguments.dtype or "bfloat16", DTYPE_NAMES)
    if not arguments.config_only:
        return _examine(arguments)
    from d2sd.cli.examination import plan_pair  # imports torch

    return plan_pair(arguments)


def _examine(a: argparse.Namespace) -> int:
    if a.mend and a.mend.exists():
        raise InputError(f"{a.mend} already exists; name a new folder")
    if a.vp_reference and not a.vp:
        raise InputError("--vp-reference names the reference of --vp; name this drafter too")
    config = DecodeConfig("autoregressive", chat=a.chat, thinking=a.thinking)
    check_models(resolve(target=a.target, dtype=a.dtype), config, device=a.device)
    prompts = [p.text for p in read_prompts(a.prompts, PROMPTS if a.limit is None else a.limit)]
    first = Asked(a.drafter, prompts, a.chat, a.thinking, 0, a.expect, a.reference, a.dtype, target=a.target)
    check_reachable(a.drafter, a.vp, a.reference, a.vp_reference)
    from d2sd.cli.examination import examine_drafters

    return examine_drafters(a, first, config)


def _read_logs(arguments: argparse.Namespace) -> int:
    """Prints the findings about one log, or about several logs side by side. Returns the exit status."""
    if arguments.target:
        raise InputError("--log examines logs only: leave out the target and the drafter")
    sources = []
    for log in arguments.log:
        with naming("standard input" if log == "-" else log):
            sources += sources_of(import_log(log), Path(log).name if len(arguments.log) > 1 else "")
    said = answers(sources)
    if arguments.json:
        print_json([*map(as_dict, said)])
    else:
        write_report("\n".join(report_lines(said)), arguments.out)
    return FAULT_NAMED * any(names_fault(one) for _, one in said)
