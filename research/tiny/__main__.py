"""``python -m research.tiny recipe|report``: train the bundled nets again, or say what a target's text is worth."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from d2sd.bench.prompts import prompt_file
from d2sd.errors import InputError
from research.tiny import recipe
from research.tiny.report import report


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m research.tiny", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    again = commands.add_parser("recipe", help="all stages; the same command goes on where it stopped")
    again.add_argument("--out", type=Path, default=Path("runs/tiny"), metavar="FOLDER")
    worth = commands.add_parser("report", help="bits per character, repetitions and right answers of a target")
    worth.add_argument("--target", required=True, metavar="FOLDER")
    worth.add_argument("--prompts", default="heldout", metavar="NAME|FILE.jsonl")
    for command in (again, worth):
        command.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="public data sets (README.md)")
    asked = parser.parse_args(arguments)
    try:
        if asked.command == "recipe":
            recipe.run(asked.data, asked.out)
        else:
            print(json.dumps(report(asked.target, asked.data, prompt_file(asked.prompts)), indent=2))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on from what was saved last", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
