"""The guide's commands are commands."""

from __future__ import annotations

import re
import shlex

import pytest

from d2sd.__about__ import HOME
from d2sd.__main__ import _asked

GUIDE = (HOME / "docs" / "train-your-own.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", re.findall(r"^d2sd (.+)$", GUIDE, re.MULTILINE))
def test_commands_of_the_guide_are_commands(command):
    _asked(shlex.split(command))


def test_what_the_guide_names_is_there():
    paths = ("cli/train.py", "train/acceptance.py")
    known = "".join((HOME / "d2sd" / path).read_text(encoding="utf-8") for path in paths)
    assert all(name in known for name in re.findall(r"^\| `(?:--)?([\w-]+)", GUIDE, re.MULTILINE))
