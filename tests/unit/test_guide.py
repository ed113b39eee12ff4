"""The guide for contributors: its map names every module, and the files that it sends people to are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PACKAGES = {
    str(path.parent.relative_to(ROOT)): path.parent for top in ("d2sd", "app") for path in (ROOT / top).rglob("*.py")
}


def named(package: str) -> set[str]:
    """The modules that the map names in the row of a package."""
    (row,) = re.findall(rf"^\| `{re.escape(package)}/` \| (.*) \|$", GUIDE, re.MULTILINE)
    return set(re.findall(r"`(\w+)`", row))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_map_names_every_module_of_a_package_and_no_other(package):
    assert named(package) == {path.stem for path in PACKAGES[package].glob("*.py")} - {"__init__"}


def test_the_files_that_the_guide_names_are_there():
    paths = re.findall(r"`((?:app|assets|d2sd|docs|tests|tools)/[^` ]*)`", GUIDE)
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []
