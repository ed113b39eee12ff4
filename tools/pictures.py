"""Renders the README's animation: ``python -m tools.pictures`` writes ``assets/images/step.webp``."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from app import presets
from app.layout import build, launch_options
from app.machine import leave_a_core
from d2sd.__about__ import HOME
from tests.chromium import launch
from tests.e2e.driving import opened

FRAMES_PER_STAGE = 12
WIDTH = 1200  # px
MOVE = """(slider, value) => {
  slider.value = value;
  slider.dispatchEvent(new Event("input"));
}"""
IMAGES = HOME / "assets" / "images"


def film(page: Page, address: str) -> None:
    """Writes the animation of one step. Its last frame is shown for 3 s."""
    page.emulate_media(reduced_motion="no-preference")
    opened(page, f"{address}?__theme=light&step={1 + presets.opening().instructive}")
    top = page.locator("#explorer .headline").bounding_box()
    end = page.locator("#explorer .steps").bounding_box()
    view: Any = {"x": 0, "y": top["y"], "width": WIDTH, "height": end["y"] - top["y"]}
    slider = page.locator("#explorer .way input")
    stages = float(slider.get_attribute("max") or 0)
    frames = []
    for frame in range(round(stages * FRAMES_PER_STAGE) + 1):
        slider.evaluate(MOVE, frame / FRAMES_PER_STAGE)
        frames.append(Image.open(io.BytesIO(page.screenshot(clip=view))).convert("RGB"))
    times = [round(1200 / FRAMES_PER_STAGE)] * (len(frames) - 1) + [3000]
    first, *others = frames
    first.save(
        IMAGES / "step.webp", save_all=True, append_images=others, duration=times, loop=0, lossless=True, method=6
    )


def main() -> None:
    leave_a_core()
    demo = build()
    _, address, _ = demo.launch(**launch_options(), prevent_thread_lock=True, quiet=True)
    try:
        with sync_playwright() as playwright:
            browser = launch(playwright)
            film(browser.new_page(viewport={"width": WIDTH, "height": 800}), address)
            browser.close()
    finally:
        demo.close(verbose=False)


if __name__ == "__main__":
    main()
