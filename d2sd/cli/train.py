"""Train drafters for a target. To resume an interrupted stage, run the same command again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from d2sd.bench.prompts import is_data_set, read_data_set
from d2sd.cli.common import add_command, ended_at_once
from d2sd.cli.outputs import add_output
from d2sd.config import DTYPE_NAMES, DecodeConfig
from d2sd.errors import InputError
from d2sd.folders.model_sets import check_models, resolve
from d2sd.logs.serving import Server
from d2sd.train.files import check_turns, read_conversations
from d2sd.train.settings import (
    BLOCK_SIZE,
    LAYERS,
    BlockObjective,
    BlockTraining,
    DrafterTraining,
    Eagle3Training,
    LoopConfig,
    PairTraining,
    RegenerateConfig,
)

T = TypeVar("T")
TARGET, JSONL, PROMPTS = "FOLDER|HUB-ID|NAME", "FILE.jsonl", "FILE.jsonl|ORG/NAME:SPLIT:COLUMN"
PAIR = ("/pair.json",)  # this file marks an output folder of ``train pair``
DTYPE = "default: mixed (weights in float16) for a target of 50 million parameters or more on a CPU, else float32"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of ``train``, the stages, and their arguments. The defaults are those of ``d2sd.train.settings``."""
    stages = parser.add_subparsers(dest="stage", required=True, metavar="pair|regenerate|dflash|vp|eagle3|recipe")
    stage = partial(add_command, stages)
    _add_pair(stage("pair", "train a DFlash drafter and a VP-Drafter from scratch, within the given minutes"))
    _add_regenerate(stage("regenerate", "let the target write responses to prompts"))
    _add_block_drafter(stage("dflash", "train a DFlash drafter on the target's responses"))
    _add_block_drafter(stage("vp", "train a VP-Drafter on the target's responses"))
    eagle3 = stage("eagle3", "train an EAGLE-3 drafter on the target's responses")
    _add_training(eagle3, Eagle3Training, "1, L/2 - 1, L - 4")
    _add_recipe(stage("recipe", "train the drafters of a known target: a pair, then EAGLE-3"))
    for parser in stages.choices.values():
        _show_defaults(parser)


def _show_defaults(parser: argparse.ArgumentParser) -> None:
    """Adds the default of every option to its help text, unless the text already states it."""
    for action in parser._actions:
        valued = action.nargs != 0 and isinstance(action.default, int | float | str)  # excludes flags
        if valued and "default" not in (action.help or ""):
            action.help = f"{action.help or ''} (default: %(default)s)".strip()


def _option_adder(parser: argparse.ArgumentParser, training: type) -> Callable[..., None]:
    """Returns a function that adds an option, given its flag, its help text and further arguments of ``add_argument``.

    training: class of settings. If its field with the option's name, or that of its ``loop``, has a number or text as default, the
        option gets this default and its type.
    """
    defaults: dict[str, Any] = {field.name: field.default for field in fields(training)}
    defaults |= asdict(defaults["loop"]) if "loop" in defaults else {}

    def add(flag: str, text: str, **options: Any) -> None:
        default = defaults.get(flag.strip("-").replace("-", "_"))
        if type(default) in (int, float, str):
            options = {"type": type(default), "default": default, **options}
        parser.add_argument(flag, help=text, **options)

    return add


def _add_pair(parser: argparse.ArgumentParser) -> None:
    add = _option_adder(parser, PairTraining)
    add("--target", "target model; NAME: a target from `d2sd get`", required=True, metavar=TARGET)
    add_output(
        parser, "--out", folder=True, markers=PAIR, type=Path, required=True, metavar="FOLDER",
        help="folder of both drafters and their training data; to resume an interrupted run, name its folder",
    )  # fmt: skip
    add("--prompts", "typical questions of users; a chat model writes more questions if needed", nargs="+", default=[], metavar=PROMPTS)  # fmt: skip
    add("--held-out", "prompts to measure α on (default: some of the training prompts, which are then not trained on)", nargs="+", default=[], metavar=PROMPTS)  # fmt: skip
    add("--minutes", "time for the whole run")
    add("--layers", "layers of each drafter")
    add("--block-size", "γ, anchor included", metavar="G")
    add("--draft-vocab-size", "draft the D most frequent tokens (default: 16384, or all tokens if the vocabulary is smaller)", type=int, metavar="D")  # fmt: skip
    add("--max-new-tokens", "maximum tokens of an answer")
    add(
        "--dtype", "number type of the target (default: bfloat16 on a GPU, else as for regenerate)", choices=DTYPE_NAMES
    )


def _add_regenerate(parser: argparse.ArgumentParser) -> None:
    add = _option_adder(parser, RegenerateConfig)
    add("--target", "target model; NAME: a target from `d2sd get`", required=True, metavar=TARGET)
    add("--prompts", "file of prompts (lines with prompt) or of conversations (lines with turns or messages; the target answers every "
        "turn), or a column of a hub data set (needs the package datasets)", nargs="+", required=True, metavar=PROMPTS)  # fmt: skip
    add("--chat", "put prompts into the target's chat template", action="store_true")
    add_output(parser, "--out", markers=(".settings.json",), type=Path, required=True, metavar=JSONL, help="file of the responses")  # fmt: skip
    add("--batch-size", "responses written in parallel")
    add("--max-new-tokens", "maximum tokens of a response")
    add("--server", "get the responses from this OpenAI-compatible server, which runs the target (vLLM, SGLang, llama.cpp)", metavar="URL")  # fmt: skip
    add("--allow-remote", "allow a server on another machine", action="store_true")
    add("--temperature", "sampling temperature; 0 is greedy")
    add("--dtype", f"number type; {DTYPE}", choices=DTYPE_NAMES)


def _add_block_drafter(parser: argparse.ArgumentParser) -> None:
    add = _add_training(parser, BlockTraining, "evenly spaced")
    add("--start", "drafter to start from (default: copies of the target's last layers)", type=Path, metavar="FOLDER")
    add("--layers", f"layers of a new drafter (default: {LAYERS})", type=int)
    add("--block-size", f"γ of a new drafter, anchor included (default: {BLOCK_SIZE})", type=int, metavar="G")
    add("--mask-token", "mask token; must occur in no text (default: the tokenizer's mask token, else an unused token)", metavar="TEXT")  # fmt: skip
    add("--markov-rank", "add DSpark's Markov head of this rank (default: no head)", metavar="R")


def _add_training(parser: argparse.ArgumentParser, training: type[DrafterTraining], taps: str) -> Callable[..., None]:
    """Adds the options that the training of every kind of drafter has. Returns the result of ``_option_adder``, to add others.

    taps: says in the help text which target layers the drafter reads by default.
    """
    add = _option_adder(parser, training)
    add("--target", "target model; NAME: a target from `d2sd get`", required=True, metavar=TARGET)
    add("--responses", "file written by `d2sd train regenerate`", type=Path, required=True, metavar=JSONL)
    add_output(
        parser, "--out", folder=True, markers=("/metrics.jsonl",), type=Path, required=True, metavar="FOLDER",
        help="folder of the drafter, checkpoints and metrics",
    )  # fmt: skip
    add("--target-layers", f"target layers that the drafter reads (default: {taps})", type=int, nargs="+", dest="target_layer_ids", metavar="N")  # fmt: skip
    add("--draft-vocab-size", "draft only the D most frequent tokens of the responses (default: all tokens)", type=int, metavar="D")  # fmt: skip
    add("--max-length", "cut sequences to N tokens", metavar="N")
    add("--steps", "training steps; may be raised when the command is run again")
    add("--batch-size", "sequences per step")
    add("--learning-rate", "peak learning rate")
    add("--precision", "float32, bfloat16 (autocast), or auto: bfloat16 if it is fast on this machine")
    add("--save-every", "steps between checkpoints to resume from")
    add("--seed", "seed of all random choices")
    add("--keep-every", "save a drafter to a new folder step-… every N steps; 0: save only the final drafter", metavar="N")  # fmt: skip
    add("--held-out", "file of prompts (lines with prompt); every save measures α on the target's answers to these prompts", type=Path, metavar=JSONL)  # fmt: skip
    add("--chat", "put held-out prompts into the target's chat template", action="store_true")
    return add


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    add = _option_adder(parser, PairTraining)
    add("name", "known target", choices=("smollm2",))
    add("--target", "target (default: from `d2sd get NAME`)", metavar="FOLDER|HUB-ID")
    add("--prompts", "more questions, in addition to those that the target writes", nargs="+", default=[], metavar=PROMPTS)  # fmt: skip
    add("--minutes", "time for all drafters")
    add_output(
        parser, "--out", folder=True, markers=PAIR, type=Path, default=Path("runs/smollm2"), metavar="FOLDER",
        help="folder of the drafters (default: runs/smollm2)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    config = DecodeConfig("autoregressive", chat=getattr(arguments, "chat", False))
    check_models(resolve(target=arguments.target or arguments.name), config)
    try:
        STAGES[arguments.stage](arguments)
    except KeyboardInterrupt:
        print("stopped; the same command resumes from the last save", file=sys.stderr)
        return 130
    return 0


def _settings(kind: type[T], arguments: argparse.Namespace, **others: Any) -> T:
    named = {field.name: getattr(arguments, field.name) for field in fields(kind) if hasattr(arguments, field.name)}  # type: ignore[arg-type]
    return kind(**named | others)


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
        if not turns:
            raise InputError(f"{source} contains no prompts; give JSON lines with a text under prompt")
        conversations += turns
    return conversations


def _prompts(sources: Sequence[str]) -> tuple[str, ...]:
    return tuple(turns[0] for turns in _conversations(sources))


def _pair(arguments: argparse.Namespace) -> None:
    prompts, held_out = map(_prompts, (arguments.prompts, arguments.held_out))
    settings = _settings(PairTraining, arguments, prompts=prompts, held_out=held_out)
    from d2sd.train.pair import train_pair

    train_pair(settings)


def _block_drafter(arguments: argparse.Namespace) -> None:
    objective, loop = BlockObjective(variable_prefix=arguments.stage == "vp"), _settings(LoopConfig, arguments)
    settings = _settings(BlockTraining, arguments, objective=objective, loop=loop)
    from d2sd.train.block_drafters import train_drafter

    train_drafter(settings)


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
    "dflash": _block_drafter,
    "vp": _block_drafter,
    "eagle3": _eagle3,
    "recipe": _recipe,
}
