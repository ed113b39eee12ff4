"""The recipe's commands are commands that ``train`` knows."""

from __future__ import annotations

import argparse
from pathlib import Path

from d2sd.cli import train
from d2sd.train.smollm2 import commands


def test_every_command_of_the_recipe_parses_and_reads_what_an_earlier_one_wrote(tmp_path):
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    written: set[Path] = set()
    for command in commands("target", [], tmp_path):
        arguments = parser.parse_args(command)
        for name in ("responses", "start"):
            needed = getattr(arguments, name, None)
            assert needed is None or needed in written
        assert all(p in written for p in getattr(arguments, "prompts", []))
        written.add(arguments.out)
    assert {tmp_path / name for name in ("dflash", "vp", "eagle3")} <= written
