"""Idle windows, closed windows, and lost servers."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.chromium import new_page
from tests.e2e.driving import (
    PATIENCE,
    choose_method,
    drawn_figure,
    finished,
    measure_own,
    opened,
    start,
    view,
    window,
)

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]


def test_closed_window_frees_models_for_another(laptop, address, page: Page):
    closed = new_page(laptop)
    opened(closed, address)
    measure_own(closed, "🙂\n" * 100)
    before = view(page).get_attribute("data-run") or ""
    page.locator("#prompt textarea").fill("One day, a cat")
    page.locator("#run").click()
    expect(page.locator("#notice textarea")).to_have_value(re.compile("Another run is in progress"), timeout=PATIENCE)
    closed.close()
    expect(view(page)).not_to_have_attribute("data-run", before, timeout=PATIENCE)
    finished(page)


COUNT_FRAMES = """{
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


def wait_until_idle(page: Page) -> None:
    page.wait_for_function("thirtyIdleFrames()", timeout=PATIENCE)


def test_resting_page_requests_no_frames_and_loads_plotly_once_from_own_host(empty: Page, address: str):
    empty.add_init_script(COUNT_FRAMES)
    elsewhere: list[str] = []
    plotly: list[str] = []
    local = (address, "data:", "blob:")
    empty.on("request", lambda r: None if r.url.startswith(local) else elsewhere.append(r.url))
    empty.on("request", lambda r: plotly.append(r.url) if "plotly" in r.url else None)
    opened(empty, address)
    assert empty.evaluate("framesAsked") > 0
    wait_until_idle(empty)
    for tab in ("Learn", "Race"):
        empty.get_by_role("tab", name=tab).click()
        expect(empty.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
        wait_until_idle(empty)
    assert plotly == []
    empty.get_by_role("tab", name="Calibrate").click()
    drawn_figure(empty, "uniform")
    wait_until_idle(empty)
    assert empty.locator("#calibration [data-figure=second] .main-svg").count() == 0  # collapsed, so not drawn
    drawn_figure(empty, "second")
    wait_until_idle(empty)
    assert len(plotly) == 1
    assert elsewhere == []


@pytest.fixture
def server():
    """A page served offline by a separate process, which tests may kill."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "GRADIO_SERVER_PORT": str(port),
        "HF_HUB_OFFLINE": "1",
        "GRADIO_SERVER_NAME": "127.0.0.1",
        "PYTHONUNBUFFERED": "1",
    }
    process = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        # Gradio prints the address once the server answers there.
        said = next((line for line in process.stdout if str(port) in line), None)
        assert said, "the server ended"
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_lost_server_shows_sentence_and_keeps_page(laptop, server):
    process, address = server
    with window(laptop, address) as page:
        choose_method(page, "autoregressive")
        start(page, "🙂", 2000)  # does not stop early
        process.kill()
        process.wait()
        expect(page.locator(".toast-body")).to_contain_text(re.compile("connection.*lost", re.I), timeout=PATIENCE)
        assert int(view(page).get_attribute("data-steps") or 0) > 0
        expect(page.locator("#follow")).to_have_text("Waiting …", timeout=PATIENCE)
        page.locator("#text .tok[data-step]").first.click()
        expect(view(page)).to_have_attribute("data-step", "0")
