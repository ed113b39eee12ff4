"""The style sheets of the tabs share one page: a tab that is opened must not restyle the others."""

from __future__ import annotations

import re

import pytest

from app.view import APP
from d2sd.__about__ import HOME

# classes and ids that each sheet may style
SCOPES = {
    "calibrate": (".calibrate",),
    "learn": (".tour",),
    "race": (".race", "#race"),
    "runs": ("#runs",),
}


@pytest.mark.parametrize("sheet", sorted(APP.glob("*/*.css")), ids=lambda sheet: sheet.stem)
def test_tab_style_rules_stay_in_their_view(sheet):
    if sheet.parent.name == "static":
        pytest.skip("of the whole page")
    rules = re.findall(r"([^{}]+)\{", re.sub(r"/\*.*?\*/", "", sheet.read_text(encoding="utf-8"), flags=re.DOTALL))
    selectors = [one.strip() for rule in rules for one in re.split(r",(?![^(]*\))", rule)]
    assert [s for s in selectors if not s.startswith(("@", *SCOPES[sheet.stem]))] == []


def test_fonts_have_four_sizes():
    sheets = [*APP.rglob("*.css"), *(HOME / "assets" / "viewer").glob("*.css")]
    found = {
        (sheet.name, float(size))
        for sheet in sheets
        for size in re.findall(r"font(?:-size)?:[^;{}]*?(\d+(?:\.\d+)?)px", sheet.read_text(encoding="utf-8"))
    }
    presenter_only = {("presenter.css", 52), ("presenter.css", 28)}
    assert len(sheets) > 10
    assert {(name, size) for name, size in found - presenter_only if size not in (13, 16, 19, 36)} == set()
