"""What a Hugging Face Space needs: front matter that fits the requirements."""

from __future__ import annotations

from pathlib import Path

import yaml
from packaging.requirements import Requirement

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
