"""A served page for tests that call it without a browser."""

from __future__ import annotations

import pytest

from tests.page_client import PageClient, served


@pytest.fixture(scope="session")
def demo():
    """A served page; ``address`` is its URL."""
    with served() as page:
        yield page


@pytest.fixture(scope="module")
def client(demo):
    return PageClient(demo.address)
