"""The page, served once per worker for all browser tests, and windows on it. An open window takes a tenth of a core.

Motion is reduced unless a test asks for it, since a replayed race keeps a core busy.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from app import presets
from app.runs.share import class_page
from app.session import History
from tests.e2e.driving import PHONE, put_back, window
from tests.page_client import served


@pytest.fixture(scope="session")
def address():
    with served() as page:
        yield page.address


@pytest.fixture(scope="session")
def class_file(tmp_path_factory) -> Path:
    """A class file with the recorded run, open at the step that Learn explains."""
    run, history = presets.opening(), History()
    history.keep(run, "Explore")
    path: Path = tmp_path_factory.mktemp("file") / "class.html"
    path.write_text(class_page(history.runs, run.key, run.instructive), "utf-8")
    return path


@pytest.fixture(scope="session")
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
    """A window that has not opened the page yet."""
    with window(laptop, None) as page:
        yield page


@pytest.fixture
def shown(module_page, address):
    """The window of the module with the recorded run and no selection."""
    put_back(module_page, address)
    return module_page


@pytest.fixture
def phone(browser, address):
    """A window as wide as a phone."""
    context = browser.new_context(viewport=PHONE, is_mobile=True, has_touch=True, reduced_motion="reduce")
    with window(context, address) as page:
        yield page
    context.close()
