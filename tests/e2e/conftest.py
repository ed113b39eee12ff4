"""The page, started once."""

from __future__ import annotations

import pytest

from app.layout import build, launch_options
from tests.e2e.driving import opened


@pytest.fixture(scope="session")
def address():
    page = build()
    _, url, _ = page.launch(**launch_options(), prevent_thread_lock=True, quiet=True, server_port=None)
    try:
        yield url
    finally:
        page.close(verbose=False)


@pytest.fixture
def page(browser, address):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
    opened(page, address)
    yield page
    context.close()
    assert errors == []
