"""Train drafters for a target. To resume an interrupted stage, run the same command again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from d2sd.bench.prompts import is_data_set, read_data_set
from d2sd.cli.common import add_command, add_output, ended_at_once
from d2sd.errors import InputError
from d2sd.logs.serving import Server
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
PAIR = ("/pair.json",)  # marks an output folder of ``train pair``
DTYPES = ("float32", "mixed", "bfloat16", "float16")
DTYPE = "default: mixed (weights in float16) for a target of 50 million parameters or more on a CPU, else float32"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the stages of ``train`` and their arguments, with the defaults of ``d2sd.train.settings``."""
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


def _add_pair(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--target", required=True, metavar=TARGET, help="target model; NAME: a target from `d2sd get`")
    add_output(
        parser, "--out", folder=True, own=PAIR, type=Path, required=True, metavar="FOLDER",
        help="folder of both drafters and their training data; to resume an interrupted run, name its folder",
    )  # fmt: skip
    add("--prompts", nargs="+", default=[], metavar=PROMPTS, help="typical questions of users; a chat model writes more questions if needed")  # fmt: skip
    add("--held-out", nargs="+", default=[], metavar=PROMPTS, help="prompts to measure α on (default: some of the training prompts, which are then not trained on)")  # fmt: skip
    add("--minutes", type=float, default=_default("minutes", PairTraining), help="time for the whole run")
    add("--layers", type=int, default=_default("layers", PairTraining), help="layers of each drafter")
    add("--block-size", type=int, default=_default("block_size", PairTraining), metavar="G", help="γ, anchor included")
    add("--draft-vocab-size", type=int, metavar="D", help="draft the D most frequent tokens (default: 16384, or all tokens if the vocabulary is smaller)")  # fmt: skip
    add("--max-new-tokens", type=int, default=_default("max_new_tokens", PairTraining), help="maximum tokens of an answer")  # fmt: skip
    add("--dtype", choices=DTYPES, help="number type of the target (default: bfloat16 on a GPU, else as for regenerate)")  # fmt: skip


def _add_regenerate(parser: argparse.ArgumentParser) -> None:
    add, default = parser.add_argument, RegenerateConfig()
    add("--target", required=True, metavar=TARGET, help="target model; NAME: a target from `d2sd get`")
    add("--prompts", nargs="+", required=True, metavar=PROMPTS, help="file of prompts (lines with prompt) or of conversations "
        "(lines with turns or messages; the target answers every turn), or a column of a hub data set (needs the package datasets)")  # fmt: skip
    add("--chat", action="store_true", help="put prompts into the target's chat template")
    add_output(parser, "--out", own=(".settings.json",), type=Path, required=True, metavar=JSONL, help="file of the responses")  # fmt: skip
    add("--batch-size", type=int, default=default.batch_size, help="responses written in parallel")
    add("--max-new-tokens", type=int, default=default.max_new_tokens, help="maximum tokens of a response")
    add("--server", metavar="URL", help="get the responses from this OpenAI-compatible server, which runs the target (vLLM, SGLang, llama.cpp)")  # fmt: skip
    add("--allow-remote", action="store_true", help="allow a server on another machine")
    add("--temperature", type=float, default=default.temperature, help="sampling temperature; 0 is greedy")
    add("--dtype", choices=DTYPES, help=f"number type; {DTYPE}")


def _add_block_drafter(parser: argparse.ArgumentParser) -> None:
    _add_training(parser, BlockTraining, "evenly spaced")
    add = parser.add_argument
    add("--start", type=Path, metavar="FOLDER", help="drafter to start from (default: copies of the target's last layers)")  # fmt: skip
    add("--layers", type=int, help=f"layers of a new drafter (default: {LAYERS})")
    add("--block-size", type=int, metavar="G", help=f"γ of a new drafter, anchor included (default: {BLOCK_SIZE})")
    add("--mask-token", metavar="TEXT", help="mask token; must occur in no text (default: the tokenizer's mask token, else an unused token)")  # fmt: skip
    add("--markov-rank", type=int, default=0, metavar="R", help="add DSpark's Markov head of this rank (default: no head)")  # fmt: skip


def _add_training(parser: argparse.ArgumentParser, training: type[DrafterTraining], taps: str) -> None:
    """Adds the arguments that all kinds of drafters have. taps: description of the target layers that are read by default."""
    add, default = parser.add_argument, _default("loop", training)
    add("--target", required=True, metavar=TARGET, help="target model; NAME: a target from `d2sd get`")
    add("--responses", type=Path, required=True, metavar=JSONL, help="file written by `d2sd train regenerate`")
    add_output(
        parser,
        "--out",
        folder=True,
        own=("/metrics.jsonl",),
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder of the drafter, checkpoints and metrics",
    )
    add(
        "--target-layers", type=int, nargs="+", dest="target_layer_ids", metavar="N", help=f"target layers that the drafter reads (default: {taps})"
    )  # fmt: skip
    add("--draft-vocab-size", type=int, metavar="D", help="draft only the D most frequent tokens of the responses (default: all tokens)")  # fmt: skip
    add("--max-length", type=int, default=_default("max_length"), metavar="N", help="cut sequences to N tokens")
    add("--steps", type=int, default=default.steps, help="training steps; may be raised when the command is run again")
    add("--batch-size", type=int, default=default.batch_size, help="sequences per step")
    add("--learning-rate", type=float, default=default.learning_rate, help="peak learning rate")
    add("--precision", default=default.precision, help="float32, bfloat16 (autocast), or auto: bfloat16 if it is fast on this machine")  # fmt: skip
    add("--save-every", type=int, default=default.save_every, help="steps between checkpoints to resume from")
    add("--seed", type=int, default=default.seed, help="seed of all random choices")
    add("--keep-every", type=int, default=0, metavar="N", help="save a drafter to a new folder step-… every N steps; 0: save only the final drafter")  # fmt: skip
    add("--held-out", type=Path, metavar=JSONL, help="file of prompts (lines with prompt); every save measures α on the target's answers to these prompts")  # fmt: skip
    add("--chat", action="store_true", help="put held-out prompts into the target's chat template")


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", choices=("smollm2",), help="known target")
    add("--target", metavar="FOLDER|HUB-ID", help="target (default: from `d2sd get NAME`)")
    add("--prompts", nargs="+", default=[], metavar=PROMPTS, help="more questions, in addition to those that the target writes")  # fmt: skip
    add("--minutes", type=float, default=_default("minutes", PairTraining), help="time for all drafters")
    add_output(
        parser,
        "--out",
        folder=True,
        own=PAIR,
        type=Path,
        default=Path("runs/smollm2"),
        metavar="FOLDER",
        help="folder of the drafters (default: runs/smollm2)",
    )


def _default(name: str, training: type = DrafterTraining) -> Any:
    return next(field.default for field in fields(training) if field.name == name)


def run(arguments: argparse.Namespace) -> int:
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
    from d2sd.train.text import regenerate_responses

    config, chat = _settings(RegenerateConfig, arguments), arguments.chat
    empty, answers = regenerate_responses(
        arguments.target,
        _conversations(arguments.prompts),
        arguments.out,
        config,
        dtype=arguments.dtype,
        chat=chat,
        server=Server(arguments.server, arguments.allow_remote) if arguments.server else None,
    )
    print(f"{answers} answers: {arguments.out}. {ended_at_once(empty, answers, chat)}".rstrip())


def _conversations(sources: Sequence[str]) -> list[list[str]]:
    """Returns, for each conversation in files or columns of hub data sets, the user's turns. Raises ``InputError`` if a source contains no conversation."""
    from d2sd.train.text import read_conversations

    found = []
    for source in sources:
        own = [[text] for text in read_data_set(source)] if is_data_set(source) else read_conversations(Path(source))
        if not own:
            raise InputError(f"{source} contains no prompts; give JSON lines with a text under prompt")
        found += own
    return found


def _pair(arguments: argparse.Namespace) -> None:
    from d2sd.train.pair import train_pair

    prompts, held_out = (
        tuple(turns[0] for turns in _conversations(given)) for given in (arguments.prompts, arguments.held_out)
    )
    train_pair(_settings(PairTraining, arguments, prompts=prompts, held_out=held_out))


def _block_drafter(arguments: argparse.Namespace) -> None:
    from d2sd.train.block_drafters import train_drafter

    objective, loop = BlockObjective(variable_prefix=arguments.stage == "vp"), _settings(LoopConfig, arguments)
    train_drafter(_settings(BlockTraining, arguments, objective=objective, loop=loop))


def _eagle3(arguments: argparse.Namespace) -> None:
    from d2sd.train.eagle3 import train_eagle3

    train_eagle3(_settings(Eagle3Training, arguments, loop=_settings(LoopConfig, arguments)))


def _recipe(arguments: argparse.Namespace) -> None:
    from d2sd.train.recipe import train_recipe

    name, prompts = arguments.name, tuple(turns[0] for turns in _conversations(arguments.prompts))
    train_recipe(arguments.target or name, arguments.out, arguments.minutes, prompts)


STAGES = {
    "pair": _pair,
    "regenerate": _regenerate,
    "dflash": _block_drafter,
    "vp": _block_drafter,
    "eagle3": _eagle3,
    "recipe": _recipe,
}
