"""Finds and starts Chromium for the browser tests."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # machines for the GPU tests may lack playwright
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright

SLOWER = max(1.0, float(os.environ.get("CLOCK", "1")))  # by this factor the machine should seem slower
PATIENCE = 180_000 * SLOWER  # ms; waits end once their condition is met, so a long limit costs no time
MISSING = "no Chromium on this machine (on Debian: apt install chromium-headless-shell)"
# the first one renders the same pages without a windowing system, and opens them in two thirds of the time
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find() -> str | None:
    """Path of Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def launch(playwright: Playwright) -> Browser:
    """Starts headless Chromium, for which ``expect`` waits up to ``PATIENCE``; raises ``SystemExit`` if there is none."""
    from playwright.sync_api import expect

    path = find()
    if path is None:
        raise SystemExit(MISSING)
    expect.set_options(timeout=PATIENCE)
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])


def new_page(owner: Browser | BrowserContext, **options: Any) -> Page:
    """Opens a page with CPU and timeouts slower by ``SLOWER``. ``options`` go to Playwright's ``new_page``."""
    page = owner.new_page(**options)
    page.set_default_timeout(PATIENCE)
    if SLOWER > 1:
        page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    return page
