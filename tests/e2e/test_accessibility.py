"""Accessibility of every tab in both themes, checked by axe-core."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.e2e.driving import STILL, drawn_figure, fold, measure_what, open_tab, unfold

pytestmark = pytest.mark.e2e
SEVERE = ("serious", "critical")


def severe(page: Page) -> list[str]:
    """Returns the serious and critical violations in view, with their elements."""
    page.evaluate(STILL)
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{v['id']} ({v['impact']}): {node['html'][:160]}"
        for v in found
        if v["impact"] in SEVERE
        for node in v["nodes"]
    ]


@pytest.mark.parametrize("tab", ["Explore", "Race", "Calibrate", "Learn"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_tab_has_no_serious_violation(module_page: Page, theme: str, tab: str):
    module_page.evaluate("dark => document.body.classList.toggle('dark', dark)", theme == "dark")
    open_tab(module_page, tab)
    if tab == "Calibrate":
        measure_what(module_page, "The run in Explore")
        drawn_figure(module_page, "uniform")
    assert severe(module_page) == []
    if tab in ("Race", "Calibrate"):
        unfold(module_page)
        assert severe(module_page) == []
        fold(module_page)
    if tab == "Explore":
        for name in ("why?", "Details"):
            opener = module_page.locator("#explorer").get_by_role("button", name=name)
            opener.click()
            assert severe(module_page) == []
            opener.click()
        unfold(module_page)
        assert severe(module_page) == []
        fold(module_page)
    for chapter in ("Prepare", "When it pays", "Sampling") if tab == "Learn" else ():
        module_page.locator(f"#learn .rail button[title='{chapter}']").click()
        for summary in module_page.locator("#learn .asked summary").all():
            summary.click()
        assert severe(module_page) == []
