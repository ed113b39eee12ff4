"""Accessibility of every tab in both themes, checked by axe-core."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.e2e.driving import STILL, drawn_figure, fold, measure_what, open_tab, unfold

pytestmark = pytest.mark.e2e
SEVERE = ("serious", "critical")
# All rules check the light theme; in the dark one, only the results of these can differ.
COLOUR_RULES = ["color-contrast", "link-in-text-block"]
DARK = "dark => document.body.classList.toggle('dark', dark)"
# axe also walks what is hidden, so the tab with most elements is last
TABS = ["Explore", "Race", "Learn", "Calibrate"]


def severe(page: Page, part: str | None = None) -> list[str]:
    """Returns the serious and critical violations in this part of the page, in both themes, with their elements."""
    page.evaluate(STILL)
    violations = Axe().run(page, part, {"resultTypes": ["violations"]}).response["violations"]
    page.evaluate(DARK, True)
    page.evaluate(STILL)
    violations += Axe().run(page, part, {"runOnly": COLOUR_RULES}).response["violations"]
    page.evaluate(DARK, False)
    return [
        f"{v['id']} ({v['impact']}): {node['html'][:160]}"
        for v in violations
        if v["impact"] in SEVERE
        for node in v["nodes"]
    ]


@pytest.mark.parametrize("tab", TABS)
def test_tab_has_no_serious_violation(module_page: Page, tab: str):
    open_tab(module_page, tab)
    if tab == "Learn":
        for chapter in ("Prepare", "When it pays", "Sampling"):
            module_page.locator(f"#learn .rail button[title='{chapter}']").click()
            for summary in module_page.locator("#learn .asked summary").all():
                summary.click()
            assert severe(module_page, None if chapter == "Prepare" else "#learn") == []
        return
    if tab == "Calibrate":
        measure_what(module_page, "The run in Explore")
        drawn_figure(module_page, "uniform")
    assert severe(module_page) == []
    for name, part in (("why?", ".pays"), ("Details", "#details")) if tab == "Explore" else ():
        opener = module_page.locator("#explorer").get_by_role("button", name=name)
        opener.click()
        assert severe(module_page, part) == []
        opener.click()
    unfold(module_page)
    assert severe(module_page, "#drawer") == []
    fold(module_page)
