"""CONTRIBUTING.md: its table names every package, and the files that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_contributing_table_names_every_package():
    table = GUIDE.partition("## Packages")[2].partition("\n## ")[0]
    packages = {f"{path.parent.relative_to(ROOT)}/" for top in ("d2sd", "app") for path in (ROOT / top).rglob("*.py")}
    assert packages - set(re.findall(r"`([^`]+/)`", table)) == set()


def test_contributing_names_existing_files():
    paths = re.findall(r"`((?:app|assets|d2sd|docs|tests|tools)/[^` ]*)`", GUIDE)
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []
