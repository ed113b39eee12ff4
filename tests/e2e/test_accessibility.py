"""Every tab as axe-core sees it, in both themes."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.e2e.driving import PATIENCE, drawn_figure, opened, window

pytestmark = pytest.mark.e2e
SEVERE = ("serious", "critical")


def severe(page: Page) -> list[str]:
    """The violations that keep somebody from using what is in view, with the elements that have them."""
    found = Axe().run(page).response["violations"]
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


def test_no_tab_has_a_serious_violation(themed: Page):
    found = {}
    for tab in ("Explore", "Race", "Compare", "Calibrate", "Learn"):
        themed.get_by_role("tab", name=tab, exact=True).click()
        if tab == "Calibrate":
            themed.locator("#source").get_by_label("The run in Explore").check()
            drawn_figure(themed, "uniform")
        if tab == "Learn":
            expect(themed.locator("#learn [data-ready=yes]")).to_be_attached(timeout=PATIENCE)
        themed.wait_for_timeout(300)  # what fades in is faint before
        found[tab] = severe(themed)
    themed.locator("#learn .story .head .on").click()
    for stop in ("Why a pass", "Now change"):
        themed.locator(f"#learn .dots button[title^='{stop}']").click()
        found[stop] = severe(themed)
    assert found == {tab: [] for tab in found}
