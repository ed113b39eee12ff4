"""Command-line entry point: ``d2sd`` once installed, ``python -m d2sd`` in a checkout."""

from __future__ import annotations

import argparse
import re
import sys
from difflib import get_close_matches
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from d2sd.__about__ import __version__
from d2sd.errors import InputError
from d2sd.trace.text import printable, replace_unencodable

# Only the module of the requested command is imported, since most modules of d2sd.cli take seconds to import.
COMMANDS = {
    "app": "open the web page",
    "generate": "generate text from a prompt",
    "bench": "compare methods on a prompt file, or check that they are lossless",
    "board": "rank a training run's checkpoints on the same texts: short for whatif",
    "calibrate": "measure how reliable the first drafter's confidence is",
    "doctor": "find out why a drafter's tokens are rejected: check its folder, and measure what single changes bring",
    "compare": "compare two sets of recorded runs, with confidence intervals",
    "get": "download a target that is too large to be bundled",
    "train": "train DFlash, VP- and EAGLE-3 drafters for a target",
    "trace": "check, show, summarise and convert recorded traces",
    "whatif": "compute how many tokens per step other settings or drafters would have written over recorded greedy texts",
}


class Parser(argparse.ArgumentParser):
    """Parser of the program, a command or a subcommand. An unknown option is reported before missing arguments."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known = self._option_string_actions
        # the words after a subcommand's name are those of its parser
        for word in takewhile(lambda word: word != "--" and (not self._subparsers or word[:1] == "-"), args):
            option = word.partition("=")[0]
            abbreviates = option[:2] in known or any(name.startswith(option) for name in known)
            if re.fullmatch(r"--?[A-Za-z]\S*", option) and not abbreviates:
                near = get_close_matches(option, known, 1, 0.7)
                self.error(f"unknown option {option}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (all options: {self.prog} --help)")


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns the exit code. For invalid input, prints one sentence to stderr and returns 2.

    argv: arguments of the command line; None for those of the process.
    """
    replace_unencodable()
    try:
        command, arguments = _asked(sys.argv[1:] if argv is None else argv)
        with import_module("d2sd.cli.outputs").held(arguments):
            return int(command.run(arguments) or 0)
    except InputError as error:
        print(printable(f"error: {error}").replace("\n", " "), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"error: {printable(f'{place}{error.strerror or error}')}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # compared by name, because not every command imports torch
            raise
        sentence = "there was not enough memory; use fewer tokens, a shorter prompt, a smaller model or a smaller dtype"
        print(f"error: {sentence}", file=sys.stderr)
        return 1


def _asked(argv: list[str]) -> tuple[ModuleType, argparse.Namespace]:
    """Returns the module of the command, and the parsed arguments."""
    name = "d2sd" if Path(sys.argv[0]).stem.startswith("d2sd") else "python -m d2sd"
    parser = Parser(prog=name, description="D²SD and related methods: speculative decoding with block drafters.")
    parser.add_argument("--version", action="version", version=f"d2sd {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    for name, sentence in COMMANDS.items():
        command = commands.add_parser(name, help=sentence)
        if argv[:1] == [name]:
            module = import_module(f"d2sd.cli.{name}")
            command.description = module.__doc__
            module.add_arguments(command)
    arguments = parser.parse_args(argv, argparse.Namespace(argv=argv))
    return module, arguments


def explorer() -> int:
    """The program ``d2sd-explorer``: ``d2sd app``."""
    return main(["app", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
