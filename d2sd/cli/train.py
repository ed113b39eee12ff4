"""Train drafters for a target. To resume an interrupted stage, run the same command again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from d2sd.bench.prompts import is_data_set, read_data_set
from d2sd.cli.common import add_output, ended_at_once
from d2sd.errors import InputError
from d2sd.trace.logs.serving import Server
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
DTYPE = "default: float32, and mixed (weights in float16) for a target of 50 million parameters or more on a CPU"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the stages of ``train`` and their arguments, with the defaults of ``d2sd.train.settings``."""
    stages = parser.add_subparsers(dest="stage", required=True, metavar="pair|regenerate|dflash|vp|eagle3|recipe")
    _add_pair(
        stages.add_parser(
            "pair", help="a DFlash and a VP-Drafter for your model, from nothing, within the minutes given"
        )
    )
    _add_regenerate(stages.add_parser("regenerate", help="the target writes the responses to prompts"))
    for name in ("dflash", "vp"):
        _add_block_drafter(stages.add_parser(name, help=f"{name} drafter from the target's responses"))
    eagle3 = stages.add_parser("eagle3", help="EAGLE-3 drafter from the target's responses")
    _add_training(eagle3, Eagle3Training, "1, L/2 - 1, L - 4")
    _add_recipe(stages.add_parser("recipe", help="drafters for a known target: a pair, then EAGLE-3"))
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
    add("--target", required=True, metavar=TARGET)
    add_output(
        parser, "--out", folder=True, own=PAIR, type=Path, required=True, metavar="FOLDER",
        help="of both drafters and all that they are made from; a run that was interrupted goes on there",
    )  # fmt: skip
    add(
        "--prompts",
        nargs="+",
        default=[],
        metavar=PROMPTS,
        help="what users ask; a chat model writes more by itself if needed",
    )
    add(
        "--held-out", nargs="+", default=[], metavar=PROMPTS, help="prompts to measure on (default: some of the others)"
    )
    add("--minutes", type=float, default=_default("minutes", PairTraining), help="time for everything")
    add("--layers", type=int, default=_default("layers", PairTraining), help="layers of each drafter")
    add("--block-size", type=int, default=_default("block_size", PairTraining), metavar="G", help="γ, anchor included")
    add("--draft-vocab-size", type=int, metavar="D", help="draft the D most frequent tokens (default: 16384, or all)")
    add("--max-new-tokens", type=int, default=_default("max_new_tokens", PairTraining), help="longest answer")
    add("--dtype", choices=DTYPES, help="of the target (default: bfloat16 on a GPU, else as for regenerate)")


def _add_regenerate(parser: argparse.ArgumentParser) -> None:
    add, default = parser.add_argument, RegenerateConfig()
    add("--target", required=True, metavar=TARGET)
    add("--prompts", nargs="+", required=True, metavar=PROMPTS, help="lines with prompt, or with turns or messages of a "
        "conversation, whose every turn the target answers; or a column of a hub data set (needs the package datasets)")  # fmt: skip
    add("--chat", action="store_true", help="put prompts into the target's chat template")
    add_output(parser, "--out", own=(".settings.json",), type=Path, required=True, metavar=JSONL)
    add("--batch-size", type=int, default=default.batch_size)
    add("--max-new-tokens", type=int, default=default.max_new_tokens)
    add(
        "--server",
        metavar="URL",
        help="let an OpenAI-compatible server write that runs the target (vLLM, SGLang, llama.cpp)",
    )
    add("--allow-remote", action="store_true", help="the server may be on another machine")
    add("--temperature", type=float, default=default.temperature, help="0: greedily")
    add("--dtype", choices=DTYPES, help=DTYPE)


def _add_block_drafter(parser: argparse.ArgumentParser) -> None:
    _add_training(parser, BlockTraining, "evenly spaced")
    add = parser.add_argument
    add("--start", type=Path, metavar="FOLDER", help="drafter to begin from (default: target's last layers)")
    add("--layers", type=int, help=f"layers of a new drafter (default {LAYERS})")
    add("--block-size", type=int, metavar="G", help=f"γ of a new drafter, anchor included (default {BLOCK_SIZE})")
    add(
        "--mask-token", metavar="TEXT", help="an unused token (default: the tokenizer's mask token, else an unused one)"
    )
    add("--markov-rank", type=int, default=0, metavar="R", help="add DSpark's Markov head of this rank (default: none)")


def _add_training(parser: argparse.ArgumentParser, training: type[DrafterTraining], taps: str) -> None:
    """Adds the arguments for every kind of drafter. taps: description of the layers that it reads by default."""
    add, default = parser.add_argument, _default("loop", training)
    add("--target", required=True, metavar=TARGET)
    add("--responses", type=Path, required=True, metavar=JSONL)
    add_output(parser, "--out", folder=True, own=("/metrics.jsonl",), type=Path, required=True, metavar="FOLDER")
    add(
        "--target-layers", type=int, nargs="+", dest="target_layer_ids", metavar="N", help=f"tapped layers (default: {taps})"
    )  # fmt: skip
    add("--draft-vocab-size", type=int, metavar="D", help="draft the responses' D most frequent tokens (default: all)")
    add("--max-length", type=int, default=_default("max_length"), metavar="N", help="cut sequences to N tokens")
    add("--steps", type=int, default=default.steps, help="may be raised when the command is run again")
    add("--batch-size", type=int, default=default.batch_size, help="rows of a step")
    add("--learning-rate", type=float, default=default.learning_rate)
    add("--precision", default=default.precision, help="float32, bfloat16 (autocast), or auto: what is quick here")
    add("--save-every", type=int, default=default.save_every, help="steps between checkpoints to resume from")
    add("--seed", type=int, default=default.seed)
    add("--keep-every", type=int, default=0, metavar="N", help="keep a drafter in OUT/step-N every N steps")
    add(
        "--held-out", type=Path, metavar=JSONL, help="lines with prompt, on whose texts every saved drafter is measured"
    )
    add("--chat", action="store_true", help="put held-out prompts into the target's chat template")


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", choices=("smollm2",))
    add("--target", metavar="FOLDER|HUB-ID", help="default: what `d2sd get NAME` fetched")
    add("--prompts", nargs="+", default=[], metavar=PROMPTS, help="further questions")
    add("--minutes", type=float, default=_default("minutes", PairTraining), help="time for all drafters")
    add_output(parser, "--out", folder=True, own=PAIR, type=Path, default=Path("runs/smollm2"), metavar="FOLDER")


def _default(name: str, training: type = DrafterTraining) -> Any:
    return next(field.default for field in fields(training) if field.name == name)


def run(arguments: argparse.Namespace) -> int:
    try:
        STAGES[arguments.stage](arguments)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from what was saved last", file=sys.stderr)
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
    """Returns the user's turns in files and in columns of hub data sets. Raises ``InputError`` if there are none."""
    from d2sd.train.text import read_conversations

    found = []
    for source in sources:
        own = [[text] for text in read_data_set(source)] if is_data_set(source) else read_conversations(Path(source))
        if not own:
            raise InputError(f"{source} holds no prompts; give JSON lines with a text under prompt")
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
