"""Commands and options in the training guide exist, and the recipe runs its stages in order."""

from __future__ import annotations

import re
import shlex

import pytest

from d2sd.__about__ import HOME
from d2sd.__main__ import _asked, main
from d2sd.train import pair

GUIDE = (HOME / "docs" / "train-your-own.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", re.findall(r"^d2sd (.+)$", GUIDE, re.MULTILINE))
def test_guide_commands_are_valid(command):
    _asked(shlex.split(command))


def test_guide_table_names_existing_options():
    paths = ("cli/train.py", "train/acceptance.py")
    known = "".join((HOME / "d2sd" / path).read_text(encoding="utf-8") for path in paths)
    assert all(name in known for name in re.findall(r"^\| `(?:--)?([\w-]+)", GUIDE, re.MULTILINE))


def test_recipe_trains_pair_then_eagle3(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(pair, "train_pair", lambda s: made.append(s) or (s.out / "responses.jsonl").write_text(""))
    monkeypatch.setattr(pair, "train_eagle3", made.append)
    assert main(["train", "recipe", "smollm2", "--out", str(tmp_path), "--minutes", "7"]) == 0
    first, eagle3 = made
    assert (first.target, first.out, first.mask_token) == ("smollm2", tmp_path, "<empty_output>")
    assert 60 * first.minutes + eagle3.loop.seconds == pytest.approx(7 * 60)
    assert (eagle3.responses, eagle3.out) == (tmp_path / "responses.jsonl", tmp_path / "eagle3")
