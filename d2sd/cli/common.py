"""Options and helpers that several commands share."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from d2sd.bench.prompts import Prompt, read_prompts
from d2sd.config import PASSES, SETTINGS, DecodeConfig, check_choice
from d2sd.costs.machines import MACHINES
from d2sd.errors import InputError, require
from d2sd.folders.model_sets import ModelSet, check_models, resolve
from d2sd.trace.files import utf8_lines, write_whole
from d2sd.trace.text import printable, progress
from d2sd.trace.trace import Trace, load_trace

if TYPE_CHECKING:  # imports torch (seconds, 340 MB), which commands that only read traces do not need
    from d2sd.engine import Engine

MAX_PROMPT_BYTES = 1 << 20
# Exit status of ``doctor`` if it names a fault. Its other exit statuses are 1 for a program error, 2 for invalid input or an
# examination that could not be finished, and 130 for Ctrl-C.
FAULT_NAMED = 3
# Help texts of flags that several commands have.
FLAGS = {
    "--json": "print one JSON object and nothing else",
    "--chat": "put prompts into the target's chat template",
    "--allow-remote": "allow a server on another machine",
}


def add_command(commands: Any, name: str, sentence: str) -> argparse.ArgumentParser:
    """Adds a subcommand and returns its parser. commands: result of ``add_subparsers``. sentence: its help and description."""
    added: argparse.ArgumentParser = commands.add_parser(
        name, help=sentence, description=f"{sentence[0].upper()}{sentence[1:]}."
    )
    return added


def add_model_arguments(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """Adds the options that choose models, number type and device. several: whether several drafters can be named."""
    lists: dict[str, Any] = {"action": "extend", "nargs": "+"} if several else {}
    parser.add_argument(
        "--model",
        default="tiny",
        metavar="NAME|FOLDER",
        help="bundled preset, or a folder with target/, dflash/, vp/ (default: tiny)",
    )
    parser.add_argument(
        "--target",
        metavar="FOLDER|HUB-ID|FILE.gguf|NAME",
        help="target instead of --model's target; GGUF: types Llama, Qwen2.5, Qwen3 and Gemma 3; NAME: a target from `d2sd get`",
    )
    parser.add_argument(
        "--drafter", metavar="FOLDER|HUB-ID", help="drafter of any kind in docs/drafter-format.md, instead of --model's drafters"
        + ("; several are compared" if several else ""), **lists,
    )  # fmt: skip
    parser.add_argument(
        "--second-drafter", metavar="FOLDER|HUB-ID", help="VP-Drafter instead of --model's VP-Drafter", **lists
    )
    parser.add_argument("--draft-model", metavar="FOLDER|HUB-ID", help="draft model instead of --model's draft model")
    add_number_arguments(parser)
    parser.add_argument(
        "--passes", default="auto", metavar="KIND", help="how model passes run: eager, padded (to fixed shapes), captured (as CUDA graphs), or "
        "auto (default; captured if possible, else eager)"
    )  # fmt: skip
    parser.add_argument(
        "--load-in-8bit", action="store_true", help="load the target's weights in 8 bits (needs bitsandbytes)"
    )


def add_number_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds ``--dtype`` and ``--device``."""
    parser.add_argument(
        "--dtype", help="number type: float32, mixed (on a CPU: float32 with weights in float16), bfloat16 or float16 (default: mixed for "
        "a target of 50 million parameters or more on a CPU, else float32)"
    )  # fmt: skip
    parser.add_argument(
        "--device", metavar="NAME", help="cpu, cuda, cuda:1, …, or auto to spread the target over all GPUs (default: "
        "cuda if available)"
    )  # fmt: skip


def add_flag(parser: argparse.ArgumentParser, flag: str) -> None:
    """Adds a flag of ``FLAGS``."""
    parser.add_argument(flag, action="store_true", help=FLAGS[flag])


def add_sweep_argument(parser: argparse.ArgumentParser, verb: str) -> None:
    """Adds ``--sweep``. verb: says in the help text what the command does with a method."""
    parser.add_argument(
        "--sweep", action="append", default=[], metavar="FIELD=A,B,…",
        help=f"for each value, {verb} every method that uses the field; for example K=1,2,4,8; may be repeated",
    )  # fmt: skip


def add_costs_argument(parser: argparse.ArgumentParser, use: str) -> None:
    """Adds ``--costs``, which names a machine. use: says in the help text what the costs are used for."""
    parser.add_argument("--costs", metavar="MACHINE", help=f"{use}; one of: {', '.join(MACHINES)}")


def add_limit_argument(parser: argparse.ArgumentParser, default: str = "all") -> None:
    """Adds ``--limit``. default: the default value as it is written in the help text."""
    parser.add_argument("--limit", type=int, metavar="N", help=f"use only N prompts, taken from all domains in turn (default: {default})")  # fmt: skip


def add_prompt_arguments(parser: argparse.ArgumentParser, default_limit: str = "all") -> None:
    """Adds ``--prompts``, which names a bundled set or a file, and ``--limit``."""
    parser.add_argument("--prompts", default="heldout", metavar="NAME|FILE.jsonl", help="prompt set: heldout (default), chat, or a file (lines with prompt or turns)")  # fmt: skip
    add_limit_argument(parser, default_limit)


def add_decode_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds an option for each entry of ``SETTINGS`` that has a ``meaning``."""
    for entry in SETTINGS.values():
        if not entry.meaning:
            continue
        option = f"--{entry.name.replace('_', '-')}"
        if entry.kind == "flag":
            parser.add_argument(option, action="store_true", help=entry.help)
        else:
            read = {"whole": int, "real": float, "choice": str}[entry.kind]
            parser.add_argument(option, type=read, default=entry.default, metavar=entry.metavar, help=entry.help)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of commands that run over a prompt set: prompts, models, settings and output format."""
    parser.add_argument(
        "--prompts",
        default="heldout",
        metavar="NAME|FILE.jsonl|ORG/NAME:SPLIT:COLUMN",
        help="prompt set: heldout (default), chat (questions for chat models), a file (lines with prompt or turns), or a column of a "
        "hub data set (needs the package datasets)",
    )
    add_limit_argument(parser)
    add_model_arguments(parser)
    add_decode_arguments(parser)
    add_flag(parser, "--json")


def prepare_engine(
    arguments: argparse.Namespace, config: DecodeConfig, *others: DecodeConfig
) -> tuple[Engine, list[tuple[Prompt, list[int]]]]:
    """Returns the engine that the arguments name, and the prompts with their token ids.

    config: settings of the generations.
    others: further settings, which are only checked.

    Raises ``InputError`` if the prompts cannot be read, if a prompt is too long, and the errors of ``load_engine``.
    """
    prompts = read_prompts(arguments.prompts, arguments.limit)
    engine = load_engine(arguments, config, *others)
    if wait := engine.first_use(engine.resolve(config).backend):
        print(wait, file=sys.stderr)
    tell_of_template(engine, config)
    return engine, [(prompt, engine.encode(prompt.text, config)) for prompt in prompts]


def tell_of_template(engine: Engine, config: DecodeConfig) -> None:
    """Prints a note if a chat model gets prompts without its chat template, since it may then not answer them."""
    target = engine.models.target
    if target.tokenizer.chat_template and not config.chat:
        print(f"{target.name} is a chat model, but prompts are not in its chat template; add --chat.", file=sys.stderr)


def checked_models(arguments: argparse.Namespace, *configs: DecodeConfig) -> ModelSet:
    """Returns the models that the arguments name. Raises the errors of ``resolve`` and ``check_models``, without importing torch.

    configs: settings of the generations.
    """
    check_choice("kind of passes", arguments.passes, PASSES)
    models = resolve(
        arguments.model,
        target=arguments.target,
        drafter=arguments.drafter,
        second_drafter=arguments.second_drafter,
        draft_model=arguments.draft_model,
        dtype=arguments.dtype,
    )
    check_models(models, *configs, device=arguments.device)
    return models


def load_engine(arguments: argparse.Namespace, *configs: DecodeConfig) -> Engine:
    """Returns an engine with the models that the arguments name, after all checks that do not need torch.

    After loading, all existing objects are excluded from garbage collection, which would pause a timed run for a third of a second.

    configs: settings of the generations.
    """
    models = checked_models(arguments, *configs)
    from d2sd.engine import Engine  # imports torch
    from d2sd.folders.loading import load_models

    engine = Engine(load_models(models, arguments.device, arguments.load_in_8bit), arguments.passes)
    gc.freeze()
    return engine


def decode_config(arguments: argparse.Namespace, method: str, inspect: bool = True) -> DecodeConfig:
    values = {entry.name: getattr(arguments, entry.name) for entry in SETTINGS.values() if entry.meaning}
    return DecodeConfig(method=method, inspect=inspect, **values)


def record_runs(
    engine: Engine,
    prompts: Sequence[tuple[Prompt, Sequence[int]]],
    config: DecodeConfig,
    name: str,
    paths: Sequence[Path] = (),
    reuse: bool = False,
) -> Iterator[Trace]:
    """Runs all prompts with a progress bar, and yields the trace of each. Its header has the prompt and the prompt's domain.

    name: label of the progress bar.
    paths: a file for each run, written when the run ends; empty to write no files.
    reuse: whether to read the file of a run, if it exists, instead of running the prompt.
    """
    for number, (prompt, ids) in enumerate(progress(prompts, desc=name, unit="prompt")):
        path = paths[number] if paths else None
        if reuse and path and path.exists():
            yield load_trace(path)
            continue
        trace = engine.generate(ids, config)
        trace = replace(trace, header=trace.header | {"prompt": prompt.text, "domain": prompt.domain})
        if path:
            trace.save(path)
        yield trace


def read_sets(paths: Iterable[str]) -> Iterator[Trace]:
    """Yields the runs in traces and server logs, with a progress bar if reading takes long. paths: files, or folders of files."""
    from d2sd.logs import read_runs  # takes a third of a command's start, and few commands need it

    def traces() -> Iterator[Trace]:
        for file in (file for path in paths for file in files_of(path)):
            with naming(file):
                yield from read_runs(file)

    return iter(progress(traces(), desc="read", unit="run", delay=1))


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Context in which the message of an ``InputError`` names the file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{'' if file in str(error) else f'{file}: '}{error}") from None


def files_of(path: str) -> list[str]:
    """Returns the paths of the trace files in a folder, sorted by name. If ``path`` is not a folder, returns only ``path``."""
    if not Path(path).is_dir():
        return [path]
    traces = sorted(str(f) for f in Path(path).iterdir() if f.name.endswith((".jsonl", ".jsonl.gz")) and f.is_file())
    require(traces, f"the folder {path} contains no traces (.jsonl or .jsonl.gz)")
    return traces


def ended_at_once(empty: int, texts: int, chat: bool) -> str:
    """Returns a sentence about the number of empty texts, with advice; empty if there are no empty texts.

    empty, texts: number of texts that consist of an end-of-text token only, and number of all texts.
    chat: whether the prompts were put into the chat template.
    """
    if not empty:
        return ""
    which = "The text is empty" if texts == 1 else f"{empty} of {texts} texts are empty"
    return f"{which}: the target ended {'it' if empty == 1 else 'them'} immediately.{'' if chat else ' A chat model needs its template: add --chat.'}"


def read_text(path: str) -> str:
    """Returns the text of a prompt file. Raises ``InputError`` if it cannot be read, is larger than 1 MiB, or is not UTF-8."""
    try:
        with open(path, "rb") as f:
            raw = f.read(MAX_PROMPT_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read the prompt file {path}: {error.strerror}") from None
    require(len(raw) <= MAX_PROMPT_BYTES, f"the prompt file {path} is larger than 1 MiB")
    return "".join(text for _, text in utf8_lines(BytesIO(raw), f"the prompt file {path}"))


def write_report(report: str, out: Path | None) -> None:
    """Prints a report, and writes it to the file ``out`` unless that is None."""
    print(printable(report))
    if out:
        write_whole(out, report)


def write_page(path: str, page: str, what: str) -> None:
    """Writes a report as an HTML file, and prints a note. what: what the report is about."""
    write_whole(path, page)
    print(f"{path}: a report of {what}", file=sys.stderr)


def print_json(value: Any) -> None:
    with suppress(AttributeError):
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr] # JSON is UTF-8, whatever the encoding of the terminal
    sys.stdout.write(orjson.dumps(value).decode() + "\n")
