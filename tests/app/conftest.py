"""A served page for tests that call it past the browser."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def demo():
    """A page, served; ``address`` says where."""
    from app.layout import build, launch_options

    page = build()
    _, page.address, _ = page.launch(**launch_options(), prevent_thread_lock=True, quiet=True, server_port=None)
    try:
        yield page
    finally:
        page.close(verbose=False)


@pytest.fixture(scope="module")
def client(demo):
    """A client of it."""
    from tests.page_client import PageClient

    return PageClient(demo.address)
