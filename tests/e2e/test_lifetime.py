"""Idle windows, closed windows, and lost servers."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.chromium import new_page
from tests.e2e.driving import (
    choose_method,
    drawn_figure,
    finished,
    measure_own,
    opened,
    set_number,
    start,
    view,
    window,
)
from tests.page_client import served

pytestmark = pytest.mark.e2e
COUNT_FRAMES = """() => {
  const next = window.requestAnimationFrame.bind(window);
  window.framesAsked = 0;
  window.requestAnimationFrame = (work) => { window.framesAsked += 1; return next(work); };
  window.thirtyIdleFrames = async () => {
    for (let quiet = 0; quiet < 30; quiet += 1) {
      window.framesAsked = 0;
      await new Promise(next);
      if (window.framesAsked) quiet = -1;
    }
    return true;
  };
}"""
LOADED = "performance.getEntriesByType('resource').map((entry) => entry.name)"


def wait_until_idle(page: Page) -> None:
    page.wait_for_function("thirtyIdleFrames()")


def test_resting_page_requests_no_frames_and_loads_plotly_once_from_own_host(module_page: Page, address: str):
    page = module_page

    def plotly() -> list[str]:
        return [url for url in page.evaluate(LOADED) if "plotly" in url]

    page.evaluate(COUNT_FRAMES)
    page.get_by_role("tab", name="Learn").click()
    page.wait_for_function("framesAsked > 0")
    for tab in ("Learn", "Race", "Explore"):
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
        wait_until_idle(page)
    assert plotly() == []
    page.get_by_role("tab", name="Calibrate").click()
    drawn_figure(page, "uniform")
    wait_until_idle(page)
    assert page.locator("#calibration [data-figure=second] .main-svg").count() == 0  # collapsed, so not drawn
    drawn_figure(page, "second")
    wait_until_idle(page)
    assert len(plotly()) == 1
    assert all(url.startswith((address, "data:", "blob:")) for url in page.evaluate(LOADED))


def test_closed_window_frees_models_for_another(laptop, address, module_page: Page):
    page, closed = module_page, new_page(laptop)
    opened(closed, address)
    measure_own(closed, "🙂\n" * 100)
    page.get_by_role("tab", name="Explore").click()
    before = view(page).get_attribute("data-run") or ""
    page.locator("#prompt textarea").fill("One day, a cat")
    set_number(page, "max-tokens", 16)
    page.locator("#run").click()
    expect(page.locator("#notice textarea")).to_have_value(re.compile("Another run is in progress"))
    closed.close()
    expect(view(page)).not_to_have_attribute("data-run", before)
    finished(page)


def test_lost_server_shows_sentence_and_keeps_page(laptop):
    with served() as lost, window(laptop, lost.address) as page:
        choose_method(page, "autoregressive")
        start(page, "🙂", 2000)  # does not stop early
        lost.server.should_exit = True
        while any(server.is_serving() for server in lost.server.servers):  # else the page would connect again
            page.wait_for_timeout(50)
        for connection in [*lost.server.server_state.connections]:
            connection.transport.abort()
        expect(page.locator(".toast-body")).to_contain_text(re.compile("connection.*lost", re.I))
        assert int(view(page).get_attribute("data-steps") or 0) > 0
        expect(page.locator("#follow")).to_have_text("Waiting …")
        page.locator("#text .tok[data-step]").first.click()
        expect(view(page)).to_have_attribute("data-step", "0")
