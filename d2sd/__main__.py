"""Speculative decoding from the command line; ``d2sd`` once it is installed, ``python -m d2sd`` in a checkout."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from d2sd.__about__ import __version__
from d2sd.cli import app, bench, calibrate, generate, trace, train, whatif
from d2sd.cli.common import printable
from d2sd.errors import InputError

COMMANDS = {
    "app": app,
    "generate": generate,
    "bench": bench,
    "calibrate": calibrate,
    "train": train,
    "trace": trace,
    "whatif": whatif,
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; bad input is one sentence on stderr and exit code 2."""
    name = "d2sd" if Path(sys.argv[0]).stem == "d2sd" else "python -m d2sd"
    parser = argparse.ArgumentParser(
        prog=name, description="D²SD and its relatives: speculative decoding with block drafters."
    )
    parser.add_argument("--version", action="version", version=f"d2sd {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    for name, module in COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=module.HELP, description=module.__doc__))
    argv = sys.argv[1:] if argv is None else argv
    arguments = parser.parse_args(argv, argparse.Namespace(argv=argv))
    try:
        return int(COMMANDS[arguments.command].run(arguments) or 0)
    except InputError as error:
        print(printable(f"error: {error}").replace("\n", " "), file=sys.stderr)
        return 2
    except torch.OutOfMemoryError:
        sentence = "there was not enough memory; ask for fewer tokens, a shorter prompt, or a smaller model or type"
        print(f"error: {sentence}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"error: {printable(f'{place}{error.strerror or error}')}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
