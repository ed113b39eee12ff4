"""The browser of the tests."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # machines with a GPU for the GPU tests may lack it
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright

SLOWER = max(1.0, float(os.environ.get("CLOCK", "1")))  # how many times slower this machine is to seem
MISSING = "no Chromium on this machine (on Debian: apt install chromium-headless-shell)"
# the first one draws the same pages without a window's machinery: a page opens in two thirds of the time
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find() -> str | None:
    """Path of Chromium, or nothing where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def launch(playwright: Playwright) -> Browser:
    """Chromium without a window; ``SystemExit`` where there is none."""
    path = find()
    if path is None:
        raise SystemExit(MISSING)
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])


def new_page(owner: Browser | BrowserContext, **options: Any) -> Page:
    """Open a page whose processor is ``SLOWER`` times slower, and whose waits are as much longer; ``options`` of a browser's pages."""
    page = owner.new_page(**options)
    page.set_default_timeout(120_000 * SLOWER)
    if SLOWER > 1:
        page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    return page
