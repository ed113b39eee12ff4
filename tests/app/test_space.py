"""What a Hugging Face Space needs: front matter, requirements, and the GPU that is lent for a run."""

from __future__ import annotations

import types
from pathlib import Path

import yaml
from packaging.requirements import Requirement

from app import machine as gpu

ROOT = Path(__file__).parents[2]


def requirements() -> dict[str, Requirement]:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").split("\n")
    return {r.name: r for r in map(Requirement, filter(None, lines))}


def test_the_front_matter_fits_the_requirements():
    _, front, _ = (ROOT / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    matter = yaml.safe_load(front)
    assert matter["sdk"] == "gradio"
    assert matter["sdk_version"] in requirements()["gradio"].specifier
    assert (ROOT / matter["app_file"]).is_file()
    assert matter["license"] == "apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert len(matter["short_description"]) <= 60  # the hub refuses longer ones
    assert matter["title"]
    assert matter["emoji"]


def test_a_lent_card_is_asked_for_by_run(monkeypatch):
    asked = []

    def lend(duration: int):
        asked.append(duration)
        return lambda function: function

    monkeypatch.setattr(gpu, "spaces", types.SimpleNamespace(GPU=lend))
    assert gpu.on_gpu(len) is len
    assert asked == [gpu.SECONDS]
    monkeypatch.setattr(gpu, "spaces", None)
    assert gpu.on_gpu(len) is len
    assert len(asked) == 1
