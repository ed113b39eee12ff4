"""Options that several commands share."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from d2sd.bench.prompts import Prompt, read_prompts
from d2sd.config import SETTINGS, DecodeConfig
from d2sd.costs.runs import BreakEvenPoint
from d2sd.errors import InputError
from d2sd.methods import METHODS
from d2sd.trace.text import progress
from d2sd.trace.trace import Trace, read_traces

if TYPE_CHECKING:  # with torch it takes seconds and 340 MB, which commands that only read traces do without
    from d2sd.engine import Engine

MAX_PROMPT_BYTES = 1 << 20


def add_model_arguments(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """Which models, in which type; several: ``--drafter`` may be repeated."""
    parser.add_argument(
        "--model", default="tiny", metavar="NAME|FOLDER", help="bundled preset, or a folder with target/, dflash/, vp/"
    )
    parser.add_argument(
        "--target",
        metavar="FOLDER|HUB-ID|FILE.gguf|NAME",
        help="target instead of the model's own; GGUF: Llama and Qwen3 types; NAME: what `d2sd get` has got",
    )
    parser.add_argument(
        "--drafter", metavar="FOLDER|HUB-ID", action="append" if several else "store",
        help="drafter of any kind in docs/drafter-format.md instead of the model's own"
        + ("; may be repeated: all of them are replayed and compared" if several else ""),
    )  # fmt: skip
    parser.add_argument("--second-drafter", metavar="FOLDER|HUB-ID", help="VP-Drafter instead of the model's own")
    parser.add_argument("--draft-model", metavar="FOLDER|HUB-ID", help="draft model instead of the model's own")
    parser.add_argument(
        "--dtype", help="float32, mixed (float32 with weights in float16; CPU), bfloat16 or float16 (default: float32, and "
        "mixed for a target of 50 million parameters or more on a CPU)"
    )  # fmt: skip
    parser.add_argument(
        "--device", metavar="NAME", help="cpu, cuda, cuda:1, …, or auto: the target spread over all GPUs (default: "
        "cuda if there is one)"
    )  # fmt: skip
    parser.add_argument(
        "--passes", default="auto", metavar="KIND", help="eager, padded (to fixed shapes), captured (as CUDA graphs), or "
        "auto (default): captured where possible, else eager"
    )  # fmt: skip
    parser.add_argument("--load-in-8bit", action="store_true", help="target weights in 8 bits (needs bitsandbytes)")


def add_decode_arguments(parser: argparse.ArgumentParser) -> None:
    """Settings of ``DecodeConfig``."""
    for entry in SETTINGS.values():
        if entry.help is None:
            continue
        option = f"--{entry.name.replace('_', '-')}"
        if entry.kind == "flag":
            parser.add_argument(option, action="store_true", help=entry.help)
        else:
            read = {"whole": int, "real": float, "choice": str}[entry.kind]
            parser.add_argument(option, type=read, default=entry.default, metavar=entry.metavar, help=entry.help)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """What commands that run over a prompt set have in common: prompts, models, settings, form of the output."""
    parser.add_argument(
        "--prompts",
        default="heldout",
        metavar="NAME|FILE.jsonl|ORG/NAME:SPLIT:COLUMN",
        help="heldout (default), chat (questions for chat models), a file (lines with prompt or turns), or a column of a hub data "
        "set (needs the package datasets)",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="use only N prompts, taken from every domain in turn")
    add_model_arguments(parser)
    add_decode_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def prepare(
    arguments: argparse.Namespace, config: DecodeConfig, device: str | None = None
) -> tuple[Engine, list[tuple[Prompt, list[int]]]]:
    """The engine, and the prompts with their token ids, all of them checked to fit with ``config`` before any runs."""
    prompts = read_prompts(arguments.prompts, arguments.limit)
    engine = load_engine(arguments, device)
    if wait := engine.first_use(engine.resolve(config).backend):
        print(wait, file=sys.stderr)
    tell_of_template(engine, config)
    return engine, [(prompt, engine.encode(prompt.text, config)) for prompt in prompts]


def tell_of_template(engine: Engine, config: DecodeConfig) -> None:
    """Say so where a chat model is given prompts as they are: it then goes on with them instead of answering."""
    target = engine.models.target
    if target.tokenizer.chat_template and not config.chat:
        print(
            f"{target.name} is a chat model, and prompts are given to it as they are; --chat asks it.", file=sys.stderr
        )


def load_engine(arguments: argparse.Namespace, device: str | None = None) -> Engine:
    """The engine that the model arguments name, on this device or on the default one.

    What is there by then stays and is no longer looked through for garbage, which would take a third of a second in the
    middle of a run that is timed.
    """
    from d2sd.engine import load

    engine = load(
        arguments.model,
        target=arguments.target,
        drafter=arguments.drafter,
        second_drafter=arguments.second_drafter,
        draft_model=arguments.draft_model,
        dtype=arguments.dtype,
        device=arguments.device or device,
        load_in_8bit=arguments.load_in_8bit,
        passes=arguments.passes,
    )
    gc.freeze()
    return engine


def decode_config(arguments: argparse.Namespace, method: str, inspect: bool = True) -> DecodeConfig:
    """Returns validated settings from the decode arguments."""
    given = {entry.name: getattr(arguments, entry.name) for entry in SETTINGS.values() if entry.help is not None}
    return DecodeConfig(method=method, inspect=inspect, **given)


def read_sets(paths: Iterable[str]) -> Iterator[Trace]:
    """The traces of all files, one at a time, with a bar on a terminal where that takes long."""
    traces = (trace for path in paths for file in files_of(path) for trace in read_traces(file))
    return iter(progress(traces, desc="read", unit="run", delay=1))


def files_of(path: str) -> list[str]:
    """The trace files of a folder, in order of their names; any other path as it is."""
    if not Path(path).is_dir():
        return [path]
    found = sorted(str(f) for f in Path(path).iterdir() if f.name.endswith((".jsonl", ".jsonl.gz")) and f.is_file())
    if not found:
        raise InputError(f"the folder {path} holds no traces (.jsonl or .jsonl.gz)")
    return found


def ended_at_once(empty: int, texts: int, chat: bool) -> str:
    """A sentence where so many of the texts hold no token but their end, and what to do about it; chat: whether the prompts
    stood in the chat template."""
    if not empty:
        return ""
    which = "The text is empty" if texts == 1 else f"{empty} of {texts} texts are empty"
    return f"{which}: the target ended {'it' if empty == 1 else 'them'} at once.{'' if chat else ' A chat model needs its template: add --chat.'}"


def read_text(path: str) -> str:
    """A prompt file, at most 1 MiB of UTF-8."""
    try:
        with open(path, "rb") as f:
            raw = f.read(MAX_PROMPT_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read the prompt file {path}: {error.strerror}") from None
    if len(raw) > MAX_PROMPT_BYTES:
        raise InputError(f"the prompt file {path} is larger than 1 MiB")
    return raw.decode("utf-8", "replace")


def named(points: Iterable[BreakEvenPoint], prefix: str = "") -> list[BreakEvenPoint]:
    """Returns points of the break-even map with the names of their methods, each behind ``prefix``."""
    known = {method.id: method.name for method in METHODS.values()}
    return [replace(point, method=f"{prefix}{known.get(point.method, point.method)}") for point in points]
