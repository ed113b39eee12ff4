"""Every tab as axe-core sees it, in both themes."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.e2e.driving import STILL, drawn_figure, open_tab, opened, window

pytestmark = pytest.mark.e2e
SEVERE = ("serious", "critical")


def severe(page: Page) -> list[str]:
    """The violations that keep somebody from using what is in view, with the elements that have them."""
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{v['id']} ({v['impact']}): {node['html'][:160]}"
        for v in found
        if v["impact"] in SEVERE
        for node in v["nodes"]
    ]


@pytest.fixture(params=["light", "dark"])
def themed(request, laptop, address):
    with window(laptop, None) as page:
        opened(page, f"{address}?__theme={request.param}")
        yield page


def test_tabs_have_no_serious_violation(themed: Page):
    found = {}
    for tab in ("Explore", "Race", "Compare", "Calibrate", "Learn"):
        open_tab(themed, tab)
        if tab == "Calibrate":
            themed.locator("#source").get_by_label("The run in Explore").check()
            drawn_figure(themed, "uniform")
            themed.evaluate(STILL)
        found[tab] = severe(themed)
    themed.locator("#learn .story .head .on").click()
    for stop in ("Why a pass", "Now change"):
        themed.locator(f"#learn .dots button[title^='{stop}']").click()
        themed.evaluate(STILL)
        found[stop] = severe(themed)
    assert found == {tab: [] for tab in found}
