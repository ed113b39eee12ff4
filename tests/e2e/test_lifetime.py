"""Windows that go away, and servers that do."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import expect

from app import models
from d2sd.decoding.generation import Generation
from tests.e2e.driving import PATIENCE, choose_method, drawn_figure, opened, start, view

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
PER_STEP = 0.02  # added to every step, so that nothing here ends by itself before the window is closed


def test_a_closed_window_frees_its_work(laptop, address, monkeypatch):
    """As ``tests/app/test_guard.py`` tests of Race and Calibrate without a browser."""
    steps = 0
    real = Generation.step

    def slower(self: Generation):
        nonlocal steps
        steps += 1
        time.sleep(PER_STEP)
        return real(self)

    monkeypatch.setattr(Generation, "step", slower)
    page = laptop.new_page()
    opened(page, address)
    choose_method(page, "autoregressive")
    start(page, "Once upon a time", 800)
    before = steps
    for _ in range(200):
        if steps > before + 5:
            break
        page.wait_for_timeout(100)
    assert steps > before + 5, "the work goes on while the window is open"
    page.close()
    for _ in range(3):
        after = steps
        time.sleep(50 * PER_STEP)
        if steps == after:
            break
    assert steps == after, "nothing runs on for a window that is not there"
    lock = models.engine(models.Chosen("tiny")).lock
    assert lock.acquire(timeout=0.5)
    lock.release()


COUNT_FRAMES = """{
  const next = window.requestAnimationFrame.bind(window);
  window.framesAsked = 0;
  window.requestAnimationFrame = (work) => { window.framesAsked += 1; return next(work); };
}"""


@pytest.fixture(scope="module")
def watched(browser, address):
    """A window, and the addresses of all that it has asked for."""
    context = browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.add_init_script(COUNT_FRAMES)
    opened(page, address)
    yield page, asked
    context.close()


def test_a_page_that_rests_asks_for_no_frames(watched):
    page, _ = watched
    frames = []
    for _ in range(10):  # seconds, until all is drawn
        frames.append(page.evaluate("window.framesAsked"))
        page.evaluate("window.framesAsked = 0")
        page.wait_for_timeout(1000)
        if page.evaluate("window.framesAsked") < 5:
            break
    else:
        pytest.fail(f"frames asked for, by the second: {frames}")
    assert frames[0] > 0


def test_the_drawing_library_comes_with_the_first_tab_that_needs_it_and_nothing_from_anywhere_else(watched, address):
    page, asked = watched
    page.get_by_role("tab", name="Learn").click()
    expect(page.locator("#learn [data-ready=yes]")).to_be_attached(timeout=PATIENCE)
    page.get_by_role("tab", name="Explore").click()
    assert not [url for url in asked if "plotly" in url]
    assert not page.evaluate("Boolean(window.Plotly)")
    page.get_by_role("tab", name="Calibrate").click()
    drawn_figure(page, "uniform")
    assert len([url for url in asked if "plotly" in url]) == 1
    for name in ("Race", "Compare"):
        page.get_by_role("tab", name=name, exact=True).click()
        page.wait_for_timeout(300)
    assert not [url for url in asked if not url.startswith((address, "data:", "blob:"))]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def server():
    """A page of its own, in a process that may be ended, told that there is no network."""
    port = free_port()
    environment = os.environ | {
        "GRADIO_SERVER_PORT": str(port),
        "HF_HUB_OFFLINE": "1",
        "GRADIO_SERVER_NAME": "127.0.0.1",
    }
    process = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urlopen(address, timeout=5).close()
                break
            except OSError:
                time.sleep(0.2)
        yield process, address
    finally:
        process.kill()
        process.wait()


def test_a_lost_server_is_a_sentence_and_what_is_there_stays(browser, server):
    process, address = server
    page = browser.new_page()
    opened(page, address)
    choose_method(page, "autoregressive")
    start(page, "🙂", 1000)  # goes on without an end
    process.kill()
    process.wait()
    expect(page.locator(".toast-body")).to_contain_text(re.compile("connection.*lost", re.I), timeout=PATIENCE)
    assert int(view(page).get_attribute("data-steps") or 0) > 0
    expect(page.locator("#follow")).to_have_text("Waiting for the next step", timeout=PATIENCE)
    page.locator("#text .tok[data-step]").first.click()
    expect(view(page)).to_have_attribute("data-step", "0")
    page.close()
