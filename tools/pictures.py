"""The README's pictures, taken anew: ``python -m tools.pictures`` writes them to ``assets/images``."""

from __future__ import annotations

import io

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from app import presets
from app.layout import build, launch_options
from app.machine import leave_a_core
from tests.chromium import launch
from tests.e2e.driving import opened

FRAMES_A_STAGE = 14
MOVE = """(slider, value) => {
  slider.value = value;
  slider.dispatchEvent(new Event("input"));
}"""
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


def film(page: Page, address: str) -> None:
    """One step as it comes about, its end held for a while."""
    page.emulate_media(reduced_motion="no-preference")
    opened(page, f"{address}?__theme=light&step=2")
    drawing = page.locator("#explorer .drawing")
    slider = page.locator("#explorer .way input")
    stages = float(slider.get_attribute("max") or 0)
    frames = []
    for at in range(round(stages * FRAMES_A_STAGE) + 1):
        slider.evaluate(MOVE, at / FRAMES_A_STAGE)
        frames.append(Image.open(io.BytesIO(drawing.screenshot())).convert("RGB"))
    times = [round(1200 / FRAMES_A_STAGE)] * (len(frames) - 1) + [3000]
    first, *others = frames
    first.save(
        IMAGES / "step.webp", save_all=True, append_images=others, duration=times, loop=0, lossless=True, method=3
    )


def take_tabs(page: Page, address: str) -> None:
    """Race at the end of its replay, Calibrate after a prompt set, Learn at the stop of the boundaries."""
    page.emulate_media(reduced_motion="reduce")  # the replay then shows its end
    opened(page, f"{address}?__theme=light")
    page.get_by_role("tab", name="Race").click()
    page.wait_for_timeout(1500)
    save(page, "race")
    page.get_by_role("tab", name="Calibrate").click()
    page.locator("#source").get_by_label("A prompt set").check()
    page.locator("#measure").click()
    expect(page.locator("#calibration .what").first).to_contain_text("prompts", timeout=120_000)
    expect(page.locator("#calibration progress")).to_be_hidden(timeout=1_800_000)  # a chat model takes its time
    page.wait_for_timeout(1000)
    save(page, "calibrate")
    page.get_by_role("tab", name="Learn").click()
    expect(page.locator("#learn [data-ready=yes]")).to_be_attached(timeout=60_000)
    page.locator("#learn .story .head .on").click()
    for _ in range(3):
        page.locator("#learn").get_by_role("button", name="Next").click()
        page.wait_for_timeout(800)
    save(page, "learn")


def main() -> None:
    """Start the page, look at it, stop it."""
    leave_a_core()
    demo = build()
    _, address, _ = demo.launch(**launch_options(), prevent_thread_lock=True, quiet=True)
    try:
        with sync_playwright() as playwright:
            browser = launch(playwright)
            take(browser.new_page(viewport={"width": 1440, "height": 900}, device_scale_factor=2), address)
            film(browser.new_page(viewport={"width": 1200, "height": 800}), address)
            take_tabs(browser.new_page(viewport={"width": 1440, "height": 1000}), address)
            browser.close()
    finally:
        demo.close(verbose=False)


if __name__ == "__main__":
    main()
