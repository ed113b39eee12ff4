"""Replay recorded greedy texts with other settings or other drafters, and compare their tokens per step (α).

Settings are compared with the recorded run. Several drafters, such as the checkpoints of a training run, are compared with the last one.
A server's log is replayed with the local drafter, which shows whether the server runs the drafter correctly.
"""

from __future__ import annotations

import argparse
from math import inf

from d2sd.bench.prompts import read_prompts
from d2sd.bench.settings import SYNTAX, parse_settings
from d2sd.cli.common import (
    add_costs_argument,
    add_limit_argument,
    add_model_arguments,
    add_output,
    checked_models,
    load_engine,
    read_sets,
)
from d2sd.config import DecodeConfig
from d2sd.costs.machines import machine_of
from d2sd.errors import InputError
from d2sd.folders.configs import drafter_kind
from d2sd.replay.settings import check_replayable
from d2sd.train.files import training_step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "texts", nargs="+", metavar="TRACE|FOLDER",
        help="runs recorded at temperature 0 with the target of --model or --target, or a server's log with token ids; with --prompts: a "
        "folder for the texts",
    )  # fmt: skip
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--methods", metavar="A,B,…", help="methods to replay: all, or a list (default: the recorded method; with --drafter: dflash, or eagle3 for an "
        f"EAGLE-3 drafter; with --second-drafter: d2sd). Each entry is {SYNTAX}"
    )  # fmt: skip
    parser.add_argument(
        "--sweep", action="append", default=[], metavar="FIELD=A,B,…",
        help="for each value, replay every method that uses the field; for example K=1,2,4,8; may be repeated",
    )  # fmt: skip
    add_costs_argument(
        parser, "machine whose costs guide cost-aware settings and give calculated times (nothing is timed)"
    )
    add_model_arguments(parser, several=True)
    parser.add_argument("--prompts", metavar="NAME|FILE.jsonl|ORG/NAME:SPLIT:COLUMN", help="prompt set (as for calibrate) that the target answers first; answers and results are kept in the folder and reused")  # fmt: skip
    add_limit_argument(parser)
    parser.add_argument("--chat", action="store_true", help="put prompts into the target's chat template")
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="N", help="maximum tokens of a text (default: 128)")  # fmt: skip
    add_output(parser, "--html", metavar="OUT.html", help="also write a report: figures, tables, origin")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    """Replays the texts and prints the comparison. After Ctrl-C, the comparison has only the drafters that were replayed."""
    config = DecodeConfig("autoregressive", arguments.max_new_tokens, chat=arguments.chat, inspect=False)
    methods = arguments.methods if arguments.methods not in (None, "all") else config.method
    parse_settings(methods, arguments.sweep, config)  # raises errors now, before models are loaded
    machine = machine_of(arguments.costs) if arguments.costs else None
    if arguments.prompts and len(arguments.texts) > 1:
        raise InputError("--prompts writes the texts into one folder; name one folder")
    prompts = read_prompts(arguments.prompts, arguments.limit) if arguments.prompts else []
    traces = [] if prompts else list(read_sets(arguments.texts))
    for trace in traces:
        check_replayable(trace)
    part, sources = _drafters(arguments)
    single = {name: (getattr(arguments, name) or [None])[0] for name in ("drafter", "second_drafter")}
    named = [argparse.Namespace(**{**vars(arguments), **single, part: source}) for source in sources]
    for one in named:
        checked_models(one, config)
    for source in arguments.drafter or ():
        if drafter_kind(source) == "second":
            raise InputError(
                f"{source} is a VP-Drafter, which drafts second: name it with --second-drafter, and its first drafter with --drafter"
            )
    engine = load_engine(named[0], config)
    from d2sd.cli.replays import compare_drafters  # imports torch

    return compare_drafters(arguments, engine, part, sources, prompts, traces, machine)


def _drafters(arguments: argparse.Namespace) -> tuple[str, list[str | None]]:
    """Returns the name of the option that names the drafters to compare, and the drafters. Checkpoints are in the order of training."""
    firsts, seconds = arguments.drafter or [], arguments.second_drafter or []
    if len(firsts) > 1 and len(seconds) > 1:
        raise InputError("compare several first drafters or several second drafters, not both")
    part, sources = ("second_drafter", seconds) if len(seconds) > 1 else ("drafter", firsts)
    return part, sorted(sources or [None], key=lambda source: inf if (step := training_step(source)) is None else step)
