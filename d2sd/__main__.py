"""``python -m d2sd``: generate, bench, calibrate, train, trace, whatif."""

from __future__ import annotations

import argparse
import sys

import torch

from d2sd.cli import bench, calibrate, generate, trace, train, whatif
from d2sd.cli.common import printable
from d2sd.errors import InputError

COMMANDS = {
    "generate": generate,
    "bench": bench,
    "calibrate": calibrate,
    "train": train,
    "trace": trace,
    "whatif": whatif,
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; bad input is one sentence on stderr and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m d2sd", description=__doc__)
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
