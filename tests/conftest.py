"""Fixtures that many tests share.

What they need is imported inside: where several processes test, the one that hands out the tests loads no networks.
"""

from __future__ import annotations

import gc
import sys

import pytest

from tests.chromium import find, launch

gc.disable()  # until all is collected


def pytest_collection_finish() -> None:
    """What is imported stays: no need to look through it for garbage again and again."""
    if sys.version_info < (3, 12):
        # Gradio imports this late, and until Python 3.11.8 an import fails that a finaliser interrupts with one of its own.
        import pydantic.v1  # noqa: F401
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory):
    """Models that were got on this machine are out of sight: the page opens with the bundled one everywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("D2SD_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def tokenizer():
    from tests.nets import make_tokenizer

    return make_tokenizer()


@pytest.fixture(scope="session")
def bundled():
    """The engine with the bundled networks."""
    from d2sd import load

    return load("tiny")


@pytest.fixture(scope="session", params=["qwen3", "llama"])
def engine(request, tokenizer):
    """One with tiny networks."""
    from tests.nets import make_engine

    return make_engine(tokenizer, request.param)


@pytest.fixture(scope="session")
def browser():
    """One real browser for all tests of the page."""
    if find() is None:
        pytest.skip("no Chromium on this machine (on Debian: apt install chromium-headless-shell)")
    # only here: machines with a GPU for the GPU tests may lack it
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=20_000)  # ms: several browsers and engines may share few cores
    with sync_playwright() as playwright:
        browser = launch(playwright)
        try:
            yield browser
        finally:
            browser.close()
