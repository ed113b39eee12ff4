"""The style sheets of the tabs share one page: a tab that is opened must not restyle the others."""

from __future__ import annotations

import re

import pytest

from app.views.drawn import STATIC

# the class or id of what each folder draws
SCOPES = {
    "calibrate": (".calibrate",),
    "compare": (".compared", "#compare-view"),
    "learn": (".tour", '[data-everything="true"] .tour', ".look-here", ".dark .look-here"),
    "race": (".race", "#race"),
    "runs": ("#runs",),
    "story": (".story",),
    "whatif": (".whatif", "#whatif"),
}


@pytest.mark.parametrize("folder", sorted(f.name for f in STATIC.iterdir() if (f / f"{f.name}.css").exists()))
def test_every_rule_of_a_tab_stays_in_its_own_view(folder):
    sheet = (STATIC / folder / f"{folder}.css").read_text(encoding="utf-8")
    rules = re.findall(r"([^{}]+)\{", re.sub(r"/\*.*?\*/", "", sheet, flags=re.DOTALL))
    selectors = [one.strip() for rule in rules for one in re.split(r",(?![^(]*\))", rule)]
    assert [s for s in selectors if not s.startswith(("@", *SCOPES[folder]))] == []
