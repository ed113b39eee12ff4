"""What the page says of models before they are loaded."""

from __future__ import annotations

import json

from app import models
from app.models import planned
from tests.unit.test_plan import PAIRS, folders


def test_a_folder_of_ones_own_says_what_would_run(tmp_path):
    folders(PAIRS["Qwen/Qwen3.5-4B"], tmp_path)
    (tmp_path / "drafter").rename(tmp_path / "dflash")
    said = planned(models.FOLDER, str(tmp_path))
    assert said.startswith("Type qwen3_5, layers: 24 linear, 8 full. It runs eagerly, also on a GPU: its linear layers")
    assert "GB in bfloat16" in said


def test_what_is_refused_says_why(tmp_path):
    folders(PAIRS["moonshotai/Kimi-K2.5"], tmp_path)
    said = planned(models.FOLDER, str(tmp_path))
    assert said.startswith("Refused: targets of type 'kimi_k25' are not supported (its latent attention is not)")


def test_nothing_is_said_before_there_is_something_to_read(tmp_path, monkeypatch):
    assert planned("tiny", "") == planned(models.FOLDER, "") == planned(models.FOLDER, str(tmp_path)) == ""
    assert planned("Qwen/Qwen3-4B", "") == ""  # its config is not here, and nobody waits for a network
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps({}))
    monkeypatch.setattr("app.models.public", lambda: True)
    assert planned(models.FOLDER, str(tmp_path)) == ""
