"""CONTRIBUTING.md names every package and existing files; the commands and options in the training guide exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from d2sd.__main__ import _asked, main
from d2sd.train import pair

ROOT = Path(__file__).parents[2]
TARGET = str(ROOT / "assets" / "models" / "tiny" / "target")
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TRAINING = (ROOT / "docs" / "train-your-own.md").read_text(encoding="utf-8")


def test_contributing_table_names_every_package():
    table = GUIDE.partition("## Packages")[2].partition("\n## ")[0]
    packages = {f"{path.parent.relative_to(ROOT)}/" for top in ("d2sd", "app") for path in (ROOT / top).rglob("*.py")}
    assert packages - set(re.findall(r"`([^`]+/)`", table)) == set()


def test_contributing_names_existing_files():
    paths = re.findall(r"`((?:app|assets|d2sd|docs|tests|tools)/[^` ]*)`", GUIDE)
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("command", re.findall(r"^d2sd (.+)$", TRAINING, re.MULTILINE))
def test_training_guide_commands_are_valid(command):
    _asked(shlex.split(command))


def test_training_guide_table_names_existing_options():
    paths = ("cli/train.py", "train/acceptance.py", "train/pair.py")
    known = "".join((ROOT / "d2sd" / path).read_text(encoding="utf-8") for path in paths)
    assert all(name in known for name in re.findall(r"^\| `(?:--)?([\w-]+)", TRAINING, re.MULTILINE))


def test_recipe_trains_pair_then_eagle3(tmp_path, monkeypatch):
    made = []
    row = '{"prompt_ids": [1], "response_ids": [2, 3]}'
    monkeypatch.setattr(pair, "train_pair", lambda s: made.append(s) or (s.out / "responses.jsonl").write_text(row))
    monkeypatch.setattr(pair, "train_eagle3", made.append)
    assert main(["train", "recipe", "smollm2", "--target", TARGET, "--out", str(tmp_path), "--minutes", "7"]) == 0
    first, eagle3 = made
    assert (first.target, first.out, first.mask_token) == (TARGET, tmp_path, "<empty_output>")
    assert 60 * first.minutes + eagle3.loop.seconds == pytest.approx(7 * 60)
    assert (eagle3.responses, eagle3.out) == (tmp_path / "responses.jsonl", tmp_path / "eagle3")
