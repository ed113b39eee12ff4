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
from playwright.sync_api import Page, expect

from app import models
from d2sd.decoding.generation import Generation
from tests.e2e.driving import PATIENCE, choose_method, opened, set_number, start, view

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
PER_STEP = 0.02  # added to every step, so that nothing here ends by itself before the window is closed


def explore(page: Page) -> None:
    choose_method(page, "autoregressive")
    start(page, "Once upon a time", 800)


def race(page: Page) -> None:
    page.get_by_role("tab", name="Race").click()
    set_number(page, "race-max-tokens", 800)
    page.locator("#start-race").click()
    # A server knows of a window by its stream, which opens once the page has drawn its figures.
    expect(page.locator("#race .title")).to_contain_text("Running", timeout=PATIENCE)


def calibrate(page: Page) -> None:
    page.get_by_role("tab", name="Calibrate").click()
    page.get_by_label("A prompt set").check()
    page.locator("#measure").click()


@pytest.mark.parametrize("work", [explore, race, calibrate], ids=lambda work: work.__name__)
def test_a_closed_window_frees_its_work(laptop, address, monkeypatch, work):
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
    work(page)
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


def test_a_page_that_rests_asks_for_no_frames_and_fetches_nothing_from_anywhere_else(laptop, address):
    page = laptop.new_page()
    page.add_init_script(COUNT_FRAMES)
    elsewhere: list[str] = []
    page.on("request", lambda r: None if r.url.startswith((address, "data:", "blob:")) else elsewhere.append(r.url))
    opened(page, address)
    asked = []
    for _ in range(10):  # seconds, until all is drawn
        asked.append(page.evaluate("window.framesAsked"))
        page.evaluate("window.framesAsked = 0")
        page.wait_for_timeout(1000)
        if page.evaluate("window.framesAsked") < 5:
            break
    else:
        pytest.fail(f"frames asked for, by the second: {asked}")
    assert asked[0] > 0
    for tab in page.get_by_role("tab").all():
        tab.click()
        page.wait_for_timeout(300)
    page.close()
    assert elsewhere == []


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
        until = time.monotonic() + 180  # where other tests take all cores, it imports for long
        while True:
            try:
                urlopen(address, timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, "the server ended"
                assert time.monotonic() < until, "the server does not answer"
                time.sleep(0.2)
        yield process, address
    finally:
        process.kill()
        process.wait()


def test_a_lost_server_is_a_sentence_and_what_is_there_stays(browser, server):
    process, address = server
    page = browser.new_page(reduced_motion="reduce")
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
