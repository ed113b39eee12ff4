"""Train drafters for a target. To resume an interrupted stage, run the same command again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

from d2sd.bench.prompts import is_data_set, read_data_set
from d2sd.cli.common import add_command, add_flag, ended_at_once
from d2sd.cli.outputs import add_output
from d2sd.config import DTYPE_NAMES, DecodeConfig
from d2sd.errors import InputError, require
from d2sd.folders.model_sets import check_models, resolve
from d2sd.logs.serving import Server
from d2sd.train.files import check_turns, read_conversations
from d2sd.train.settings import ROLES, Eagle3Training, LoopConfig, PairTraining, RegenerateConfig

# Options of ``train pair`` → the options that they replace
REPLACED = {
    "steps": ["minutes"],
    "responses": ["prompts", "max_new_tokens"],
    "start": ["layers", "block_size", "target_layer_ids", "mask_token", "draft_vocab_size", "markov_rank"],
}
JSONL = "FILE.jsonl"
# Arguments of options that name prompts or layers
SOURCES: dict[str, Any] = {"nargs": "+", "default": [], "metavar": "FILE.jsonl|ORG/NAME:SPLIT:COLUMN"}
LAYERS: dict[str, Any] = {"type": int, "nargs": "+", "dest": "target_layer_ids", "metavar": "N"}
# Files that mark the outputs of ``train pair``, of ``train eagle3`` and of the former ``train dflash`` and ``train vp``
PAIR, LOOP = "/pair.json", "/metrics.jsonl"
MARKERS = {"pair": (PAIR, LOOP), "eagle3": (LOOP,), "recipe": (PAIR,)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of ``train``, the stages, and their arguments. The defaults are those of ``d2sd.train.settings``."""
    stages = parser.add_subparsers(dest="stage", required=True, metavar="|".join(STAGES))
    stage = partial(add_command, stages)
    _add_pair(stage("pair", "train a DFlash drafter and a VP-Drafter, for the given minutes or steps"))
    _add_regenerate(stage("regenerate", "let the target write responses to prompts"))
    _add_eagle3(stage("eagle3", "train an EAGLE-3 drafter on the target's responses"))
    _add_recipe(stage("recipe", "train the drafters of a known target: a pair, then EAGLE-3"))
    for name, parser in stages.choices.items():
        parser.add_argument("--target", help="target model; NAME: a target from `d2sd get`", metavar="FOLDER|HUB-ID|NAME", required=name != "recipe")  # fmt: skip
        if name in MARKERS:
            add_output(
                parser, "--out", folder=True, markers=MARKERS[name], type=Path, metavar="FOLDER", required=name != "recipe", default=Path("runs/smollm2"),
                help="folder of drafters and training data, named again to resume" + " (default: runs/smollm2)" * (name == "recipe"),
            )  # fmt: skip
    for name, role in (("dflash", "first"), ("vp", "second")):  # stages of earlier versions
        setattr(stages.add_parser(name), "parse_known_args", partial(_refuse_former, name, role))  # noqa: B010


def _refuse_former(name: str, role: str, *_: Any) -> Any:
    raise InputError(f"train {name} is now d2sd train pair --only {role} --responses FILE.jsonl --out FOLDER")


def _option_adder(parser: argparse.ArgumentParser, training: type) -> Callable[..., None]:
    """Returns a function that adds an option, given its flag, its help text and further arguments of ``add_argument``.

    training: class of settings. If its field with the option's name, or that of its ``loop``, has a number or text as default, the
        option gets its type, and the help text states the default. Without the option, the parsed arguments lack it, except for a
        field of the ``loop``.
    """
    defaults: dict[str, Any] = {field.name: field.default for field in fields(training)}
    loop = asdict(defaults["loop"]) if "loop" in defaults else {}
    defaults |= loop

    def add(flag: str, text: str, **options: Any) -> None:
        name = flag.strip("-").replace("-", "_")
        default = defaults.get(name)
        if type(default) in (int, float, str):
            text = text if "default" in text else f"{text} (default: {default})"
            options = {"type": type(default), "default": loop.get(name, argparse.SUPPRESS), **options}
        parser.add_argument(flag, help=text, **options)

    return add


def _add_pair(parser: argparse.ArgumentParser) -> None:
    add = _option_adder(parser, PairTraining)
    add("--minutes", "time for the whole run")
    add("--steps", "train N steps instead; may be raised when the command is run again", type=int, metavar="N")
    add("--only", "train only the DFlash drafter (first) or only the VP-Drafter (second)", choices=ROLES)
    add("--prompts", "typical questions of users; a chat model writes more questions if needed", **SOURCES)  # fmt: skip
    add("--responses", "train on this file of `d2sd train regenerate` instead", type=Path, metavar=JSONL)
    add("--held-out", "prompts to measure α on (default: some of --prompts, which are then not trained on)", **SOURCES)  # fmt: skip
    add(
        "--start",
        "continue drafters: a folder with dflash/ or vp/ or, with --only, a drafter",
        type=Path,
        metavar="FOLDER",
    )
    add("--layers", "layers of a new drafter")
    add("--block-size", "γ of a new drafter, anchor included", metavar="G")
    add("--target-layers", "target layers that a new drafter reads (default: five, evenly spaced)", **LAYERS)  # fmt: skip
    add("--mask-token", "mask token of a new drafter; must occur in no text (default: the tokenizer's mask token, else an unused token)", metavar="TEXT")  # fmt: skip
    add("--draft-vocab-size", "draft the D most frequent tokens (default: 16384; all if there are fewer or no Markov head)", type=int, metavar="D")  # fmt: skip
    add("--markov-rank", "rank of a new drafter's Markov head; 0: no head", metavar="R")
    add("--batch-size", "sequences per step (default: chosen for the time, or 12)", type=int)
    add("--max-new-tokens", "maximum tokens of an answer")
    add(
        "--keep-every",
        "keep the drafters of every N-th step in new folders dflash/step-… and vp/step-…; 0: none",
        metavar="N",
    )
    add("--seed", "seed of all random choices")
    add(
        "--dtype", "number type of the target (default: bfloat16 on a GPU, else as for regenerate)", choices=DTYPE_NAMES
    )


def _add_regenerate(parser: argparse.ArgumentParser) -> None:
    add = _option_adder(parser, RegenerateConfig)
    add("--prompts", "file of prompts (lines with prompt) or of conversations (lines with turns or messages; the target answers every "
        "turn), or a column of a hub data set (needs the package datasets)", required=True, **SOURCES)  # fmt: skip
    add_flag(parser, "--chat")
    add_output(parser, "--out", markers=(".settings.json",), type=Path, required=True, metavar=JSONL, help="file of the responses")  # fmt: skip
    add("--batch-size", "responses written in parallel")
    add("--max-new-tokens", "maximum tokens of a response")
    add("--server", "get the responses from this OpenAI-compatible server, which runs the target (vLLM, SGLang, llama.cpp)", metavar="URL")  # fmt: skip
    add_flag(parser, "--allow-remote")
    add("--temperature", "sampling temperature; 0 is greedy")
    add(
        "--dtype",
        "number type; default: mixed (weights in float16) for a target of 50 million parameters or more on a CPU, else float32",
        choices=DTYPE_NAMES,
    )


def _add_eagle3(parser: argparse.ArgumentParser) -> None:
    add = _option_adder(parser, Eagle3Training)
    add("--responses", "file written by `d2sd train regenerate`", type=Path, required=True, metavar=JSONL)
    add("--target-layers", "target layers that the drafter reads (default: 1, L/2 - 1, L - 4)", **LAYERS)  # fmt: skip
    add("--draft-vocab-size", "draft only the D most frequent tokens of the responses (default: all tokens)", type=int, metavar="D")  # fmt: skip
    add("--max-length", "cut sequences to N tokens", metavar="N")
    add("--steps", "training steps; may be raised when the command is run again")
    add("--batch-size", "sequences per step")
    add("--learning-rate", "peak learning rate")
    add("--precision", "float32, bfloat16 (autocast), or auto: bfloat16 if it is fast on this machine")
    add("--save-every", "steps between checkpoints to resume from")
    add("--seed", "seed of all random choices")
    add("--keep-every", "keep the drafter of every N-th step in a new folder step-…; 0: none", metavar="N")  # fmt: skip
    add("--held-out", "file of prompts (lines with prompt) on which every save measures α", type=Path, metavar=JSONL)  # fmt: skip
    add("--chat", "put held-out prompts into the target's chat template", action="store_true")


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    add = _option_adder(parser, PairTraining)
    add("name", "known target", choices=("smollm2",))
    add("--prompts", "more questions, in addition to those that the target writes", **SOURCES)  # fmt: skip
    add("--minutes", "time for all drafters", default=10.0)


def run(arguments: argparse.Namespace) -> int:
    config = DecodeConfig("autoregressive", chat=getattr(arguments, "chat", False))
    check_models(resolve(target=arguments.target or arguments.name), config)
    try:
        STAGES[arguments.stage](arguments)
    except KeyboardInterrupt:
        print("stopped; the same command resumes from the last save", file=sys.stderr)
        return 130
    return 0


def _settings(kind: type, arguments: argparse.Namespace, **others: Any) -> Any:
    given = vars(arguments)
    return kind(**{field.name: given[field.name] for field in fields(kind) if field.name in given} | others)


def _regenerate(arguments: argparse.Namespace) -> None:
    config, chat = _settings(RegenerateConfig, arguments), arguments.chat
    conversations = _conversations(arguments.prompts)
    check_turns(conversations, chat)
    server = Server(arguments.server, arguments.allow_remote) if arguments.server else None
    from d2sd.train.text import regenerate_responses  # imports torch, like all imports below

    empty, answers = regenerate_responses(
        arguments.target, conversations, arguments.out, config, dtype=arguments.dtype, chat=chat, server=server
    )
    print(f"{answers} answers: {arguments.out}. {ended_at_once(empty, answers, chat)}".rstrip())


def _conversations(sources: Sequence[str]) -> list[list[str]]:
    """Returns the user's turns of each conversation. sources: files of conversations, or columns of hub data sets.

    Raises ``InputError`` if a source contains no conversation.
    """
    conversations = []
    for source in sources:
        turns = [[text] for text in read_data_set(source)] if is_data_set(source) else read_conversations(Path(source))
        require(turns, f"{source} contains no prompts; give JSON lines with a text under prompt")
        conversations += turns
    return conversations


def _prompts(sources: Sequence[str]) -> tuple[str, ...]:
    return tuple(turns[0] for turns in _conversations(sources))


def _pair(arguments: argparse.Namespace) -> None:
    out = arguments.out
    if Path(f"{out}{LOOP}").exists():
        newest = max(
            out.glob("**/config.json"), key=lambda path: path.stat().st_mtime, default=out / "config.json"
        ).parent
        raise InputError(f"{out} belongs to the training of a single drafter; continue in another folder: d2sd train pair --only first --start {newest} --responses FILE.jsonl --out FOLDER (for a VP-Drafter: --only second)")  # fmt: skip
    for option, replaced in REPLACED.items():
        given = [
            f"--{name.replace('_ids', 's').replace('_', '-')}"
            for name in replaced
            if getattr(arguments, name, None) not in (None, [])
        ]
        fits = not getattr(arguments, option) or not given
        require(fits, f"--{option} replaces {', '.join(given)}; leave out one or the other")
    prompts, held_out = map(_prompts, (arguments.prompts, arguments.held_out))
    settings = _settings(PairTraining, arguments, prompts=prompts, held_out=held_out)
    from d2sd.train.pair import train_pair

    train_pair(settings)


def _eagle3(arguments: argparse.Namespace) -> None:
    settings = _settings(Eagle3Training, arguments, loop=_settings(LoopConfig, arguments))
    from d2sd.train.eagle3 import train_eagle3

    train_eagle3(settings)


def _recipe(arguments: argparse.Namespace) -> None:
    prompts = _prompts(arguments.prompts)
    from d2sd.train.pair import train_recipe

    train_recipe(arguments.target or arguments.name, arguments.out, arguments.minutes, prompts)


STAGES = {
    "pair": _pair,
    "regenerate": _regenerate,
    "eagle3": _eagle3,
    "recipe": _recipe,
}
