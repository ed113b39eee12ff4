"""The page, started once, and a real browser to drive it."""

from __future__ import annotations

import re
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright

from app.layout import build, launch_options


@pytest.fixture(scope="session")
def address():
    page = build()
    _, url, _ = page.launch(**launch_options(), prevent_thread_lock=True, quiet=True, server_port=None)
    try:
        yield url
    finally:
        page.close(verbose=False)


@pytest.fixture(scope="session")
def browser():
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no Chromium on this machine (on Debian: apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture
def page(browser, address):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
    page.goto(address)
    expect(page.locator("#explorer [data-run]")).to_have_attribute("data-run", re.compile("."), timeout=20_000)
    expect(page.locator("#tree g.node").first).to_be_visible()
    yield page
    context.close()
    assert errors == []
