"""A served page for tests that call it past the browser."""

from __future__ import annotations

import pytest

from tests.page_client import PageClient, served


@pytest.fixture(scope="session")
def demo():
    """A page, served; ``address`` says where."""
    with served() as page:
        yield page


@pytest.fixture(scope="module")
def client(demo):
    """A client of it."""
    return PageClient(demo.address)
