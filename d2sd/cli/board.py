"""Compare all drafters that a training run saved, over the same texts. The command is short for "d2sd whatif" with --prompts and these drafters."""

from __future__ import annotations

import argparse
from pathlib import Path

from d2sd.cli import whatif
from d2sd.errors import require


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder that `d2sd train … --keep-every N` wrote (its --out). For VP-Drafters, name their first drafter with --drafter")  # fmt: skip
    whatif.add_options(parser)
    parser.set_defaults(prompts="heldout")


def run(a: argparse.Namespace) -> int:
    a.texts = [str(a.folder / "board-texts")]
    setattr(a, "second_drafter" if a.drafter else "drafter", checkpoints(a.folder))
    return whatif.run(a)


def checkpoints(folder: Path) -> list[str]:
    """Returns the paths of the drafters ``step-N`` of a training run, and of its final drafter.

    Raises ``InputError`` if the folder has no drafter ``step-N``.
    """
    require(folder.is_dir(), f"there is no folder {folder}; give the --out folder of `d2sd train`")
    folders = [str(path.parent) for path in folder.glob("step-*/config.json")]
    require(folders, f"{folder} contains no step-N folders: train with --keep-every N to save a drafter every N steps")
    return [*folders, *([str(folder)] if (folder / "config.json").is_file() else [])]
