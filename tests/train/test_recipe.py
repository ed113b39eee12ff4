"""The recipe's commands are commands that ``train`` knows."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from d2sd.__about__ import HOME
from d2sd.__main__ import _asked
from d2sd.cli import train
from d2sd.train.recipe import commands


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


GUIDE = (HOME / "docs" / "train-your-own.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", re.findall(r"^d2sd (.+)$", GUIDE, re.MULTILINE))
def test_commands_of_the_guide_are_commands(command):
    _asked(shlex.split(command))


def test_what_the_guide_names_is_there():
    paths = ("cli/train.py", "train/acceptance.py")
    known = "".join((HOME / "d2sd" / path).read_text(encoding="utf-8") for path in paths)
    assert all(name in known for name in re.findall(r"^\| `(?:--)?([\w-]+)", GUIDE, re.MULTILINE))
