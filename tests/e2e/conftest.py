"""The page, started once for all tests of this folder: a window that is left open takes a tenth of a core.

Nothing moves by itself in these windows, but where a test says that it wants motion: a replayed race keeps a core busy.
"""

from __future__ import annotations

import pytest

from app import machine
from tests.e2e.driving import FREE_MEMORY, PHONE, put_back, window
from tests.page_client import served


@pytest.fixture(scope="package")
def address():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "memory", lambda: FREE_MEMORY)
        with served() as page:
            yield page.address


@pytest.fixture(scope="package")
def laptop(browser):
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    yield context
    context.close()


@pytest.fixture
def page(laptop, address):
    with window(laptop, address) as page:
        yield page


@pytest.fixture(scope="module")
def module_page(laptop, address):
    """A window for the tests of a module, opened once for all of them."""
    with window(laptop, address) as page:
        yield page


@pytest.fixture
def empty(laptop):
    """A window in which nothing is opened yet."""
    with window(laptop, None) as page:
        yield page


@pytest.fixture(scope="package")
def kept_page(laptop, address):
    with window(laptop, address) as page:
        yield page


@pytest.fixture
def shown(kept_page, address):
    """The recorded run, for tests that look at it and choose in it but run nothing: opened once for all of them."""
    put_back(kept_page, address)
    return kept_page


@pytest.fixture
def phone(browser, address):
    """A window as wide as a phone."""
    context = browser.new_context(viewport=PHONE, is_mobile=True, has_touch=True, reduced_motion="reduce")
    with window(context, address) as page:
        yield page
    context.close()
