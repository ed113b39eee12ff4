"""Where the browser of the tests is."""

from __future__ import annotations

import shutil


def chromium() -> str:
    """Path of Chromium; ``SystemExit`` where there is none."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        raise SystemExit("no Chromium on this machine (on Debian: apt install chromium)")
    return path
