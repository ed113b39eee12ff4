"""The README's pictures, taken anew: ``python -m tests.pictures`` writes them to ``assets/images``."""

from __future__ import annotations

import io
import shutil

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from app import presets
from app.layout import build, launch_options
from tests.e2e.driving import opened

IMAGES = presets.ASSETS / "images"


def save(page: Page, name: str) -> None:
    """The window as a picture with a palette: small, and the text stays sharp."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(256).save(IMAGES / f"{name}.png", optimize=True)


def take(page: Page, address: str) -> None:
    """Explore, light and dark."""
    for theme in ("light", "dark"):
        opened(page, f"{address}?__theme={theme}")
        page.wait_for_timeout(500)
        save(page, f"explore-{theme}")


def main() -> None:
    """Start the page, look at it, stop it."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    demo = build()
    _, address, _ = demo.launch(**launch_options(), prevent_thread_lock=True, quiet=True)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            take(browser.new_page(viewport={"width": 1440, "height": 900}, device_scale_factor=2), address)
            browser.close()
    finally:
        demo.close(verbose=False)


if __name__ == "__main__":
    main()
