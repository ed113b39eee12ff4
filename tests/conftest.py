"""Shared fixtures.

They import inside the functions, so that pytest-xdist's controller process loads no networks.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
from functools import cache, partial
from pathlib import Path

import pytest

from tests.chromium import MISSING, find, launch

gc.disable()  # until all tests are collected
os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # processes share the cores: torch's idle threads should sleep early
DURATIONS = Path(__file__).with_name("durations.json")  # seconds by file; ``make durations`` writes them
FAILURES = Path(__file__).parents[1] / "runs" / "failed-tests"  # screenshots and consoles of failed browser tests


def pytest_collection_finish() -> None:
    """Freezes imported objects, so that later garbage collections skip them."""
    if sys.version_info < (3, 12):
        # pytest's plugin and Gradio import these late. Until Python 3.11.8, an import fails if a finaliser interrupts
        # it with another import.
        import hypothesis.internal.observability  # noqa: F401
        import pydantic.v1  # noqa: F401
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # not in workers of pytest-xdist
        shutil.rmtree(FAILURES, ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked ``soak``, unless ``-m`` names them. Put the longest files first, so that no long file runs
    last; files of unknown duration come before them."""
    if "soak" not in config.option.markexpr:
        omitted = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=omitted)
        items[:] = [item for item in items if item not in omitted]
    seconds = json.loads(DURATIONS.read_text(encoding="utf-8"))
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 1e9))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.failed and (browser := getattr(item, "funcargs", {}).get("browser")):
        _save_pages(browser, FAILURES / f"{item.name[:80].replace('/', '_')}.{report.when}")
    return report


def _save_pages(browser, folder: Path) -> None:
    """Save a screenshot and the console of every open page of a browser."""
    from playwright.sync_api import Error

    folder.mkdir(parents=True, exist_ok=True)
    for number, page in enumerate(page for context in browser.contexts for page in context.pages):
        try:
            page.screenshot(path=folder / f"{number}.png")
            lines = [f"{m.type}: {m.text}" for m in page.console_messages()] + list(map(str, page.page_errors()))
            (folder / f"{number}.txt").write_text("\n".join([page.url, *lines, ""]), encoding="utf-8")
        except Error as error:  # the page crashed or is being closed
            (folder / f"{number}.txt").write_text(f"{error}\n", encoding="utf-8")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List failures and causes in full, since pytest cuts its lines to the terminal's width."""
    failed = [r for kind in ("failed", "error") for r in terminalreporter.stats.get(kind, ())]
    for report in failed:
        cause = getattr(getattr(report.longrepr, "reprcrash", None), "message", str(report.longrepr))
        terminalreporter.write_line(f"{report.nodeid} ({report.when})\n    {cause.strip().partition(chr(10))[0][:300]}")
    if "D2SD_DURATIONS" in os.environ:
        seconds = dict[str, float]()
        for report in (r for found in terminalreporter.stats.values() for r in found if hasattr(r, "duration")):
            file = report.nodeid.partition("::")[0]
            seconds[file] = seconds.get(file, 0.0) + report.duration
        rounded = {file: round(seconds[file], 1) for file in sorted(seconds)}
        DURATIONS.write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")
    if FAILURES.exists():
        terminalreporter.write_line(f"Screenshots and consoles of failed browser tests: {FAILURES}")


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory):
    """Hides downloaded models of this machine, so that the page opens with the bundled model everywhere."""
    import transformers  # noqa: F401  (its log handler keeps the standard error of the first test that imports it)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("D2SD_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="module", autouse=True)
def finish_background_loads():
    """Waits until the background thread of an opened page has loaded its models."""
    yield
    if (explore := sys.modules.get("app.explore.run")) is not None:
        explore._ahead.submit(lambda: None).result()


@pytest.fixture(scope="session")
def tokenizer():
    from tests.nets import make_tokenizer

    return make_tokenizer()


@pytest.fixture(scope="session")
def bundled():
    """The engine with the bundled networks."""
    from d2sd import load

    return load("tiny")


@pytest.fixture(scope="session")
def engines(tokenizer):
    """Cached function: an engine by target type. pytest itself keeps one value of a parametrised fixture at a time."""
    from tests.nets import make_engine

    return cache(partial(make_engine, tokenizer))


@pytest.fixture(scope="session", params=["qwen3", "llama"])
def engine(request, engines):
    """An engine with tiny networks, for each target type."""
    return engines(request.param)


@pytest.fixture(scope="session")
def browser():
    """One real browser for all tests of the page."""
    if find() is None:
        (pytest.fail if "D2SD_NEEDS_BROWSER" in os.environ else pytest.skip)(MISSING)
    # imported here, since machines for the GPU tests may lack it
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch(playwright)
        try:
            yield browser
        finally:
            browser.close()
