"""The present view, and the votes of a class in its quiz."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app import presets
from tests.chromium import new_page
from tests.e2e.driving import opened, pin, view

pytestmark = pytest.mark.e2e
LEAST = 20  # pixels: height of type that a class can read
SIZES = [(1440, 900), (1920, 1080)]

# Words of the view that are too small or not whole in the window, and words of the drawing that lie on others. `verified`: whether
# tokens of the large model lie on drafted ones.
FAULTS = """([least, verified]) => {
  const parts = function* (e) { for (; e; e = e.parentElement) yield e; };
  const seen = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && [...parts(e)].every((one) => getComputedStyle(one).opacity > 0.3);
  const written = [...document.querySelectorAll('#explorer :not(.spoken, dialog *, option, title)')].filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) && seen(e));
  const boxes = written.map((e) => {
    const range = document.createRange();
    range.selectNodeContents([...e.childNodes].find((n) => n.nodeType === 3 && n.data.trim()));
    return range.getBoundingClientRect();
  });
  const faults = [];
  written.forEach((e, at) => {
    const { left, right, top, bottom } = boxes[at];
    const scale = e.getScreenCTM?.().a ?? e.currentCSSZoom;
    const high = parseFloat(getComputedStyle(e).fontSize) * scale;
    const words = e.textContent.trim().slice(0, 30);
    if (!(high >= least)) faults.push(`${words}: ${high} pixels`);
    if (!e.closest('#text') && (left < 0 || top < -4 || right > innerWidth || bottom > innerHeight)) faults.push(`${words}: cut by the window`);
    const host = e.closest('#tree, #strip')?.getBoundingClientRect();
    if (host && (top < host.top - 4 || bottom > host.bottom + 4)) faults.push(`${words}: cut by its drawing`);
    if (!host || verified) return;
    written.slice(at + 1).forEach((other, n) => {
      const box = boxes[at + 1 + n];
      const [across, down] = [Math.min(right, box.right) - Math.max(left, box.left), Math.min(bottom, box.bottom) - Math.max(top, box.top)];
      if (other.closest('#tree, #strip') && across > 2 && down > 8) faults.push(`${words}: covered by ${other.textContent}`);
    });
  });
  return faults;
}"""
ROOT = "document.querySelector('#tree g.node[data-state=root] .shape').getBoundingClientRect().left"
DRAWN = "async () => { for (let n = 0; n < 3; n += 1) await new Promise(requestAnimationFrame); }"


@pytest.fixture
def show(browser, class_file: Path):
    """Opens the class file at an address and in a window of a size."""
    pages = []

    def shown(size: tuple[int, int], place: str) -> Page:
        page = new_page(browser, viewport={"width": size[0], "height": size[1]}, reduced_motion="reduce")
        pages.append(page)
        page.goto(f"{class_file.as_uri()}#{place}")
        page.locator("#tree g.node").first.wait_for()
        page.evaluate("document.fonts.ready")
        page.evaluate(DRAWN)
        return page

    yield shown
    for page in pages:
        page.close()


@pytest.mark.parametrize("size", SIZES)
def test_present_view_is_readable_and_whole_at_every_stage(show, size):
    page = show(size, "present=1&step=1")
    assert page.evaluate(
        "document.elementFromPoint(4, 4).closest('.presenting') !== null"
    )  # above the head of the page
    for step in range(len(presets.opening())):
        page.keyboard.press("ArrowRight" if step else "Home")
        for stage in range(1, 7):
            page.keyboard.press(f"Shift+Digit{stage}")
            page.evaluate(DRAWN)
            assert page.evaluate(FAULTS, [LEAST, stage == 5]) == [], (step, stage)


def test_tokens_far_away_become_dots_and_a_pinned_one_moves_none(show):
    page = show(SIZES[0], "present=1&step=12&stage=re-draft")
    dots = page.locator("#tree g.node:not(:has(.label:not(:empty)))")
    assert dots.count() > 0
    assert page.evaluate(
        "Math.max(...[...document.querySelectorAll('#tree .node')].map((e) => e.getBoundingClientRect().right)) <= innerWidth"
    )
    page.keyboard.press("Shift+Digit6")
    before = page.evaluate(ROOT)
    for _ in range(20):
        page.keyboard.press("Shift+ArrowRight")
    page.evaluate(DRAWN)
    expect(page.locator("#tree .node.bonus")).to_have_class(re.compile("selected"))
    assert page.evaluate(ROOT) == before


@pytest.mark.parametrize("refused", [False, True])
def test_present_fills_the_window_also_without_full_screen(empty: Page, address: str, refused):
    if refused:
        empty.add_init_script("Element.prototype.requestFullscreen = () => Promise.reject(new Error('refused'))")
    opened(empty, address)
    explorer = empty.locator("#explorer section.explorer")
    empty.get_by_role("button", name="Present").click()
    expect(explorer).to_have_class(re.compile("presenting"))
    if not refused:
        empty.wait_for_function("document.fullscreenElement")
    assert explorer.bounding_box() == {"x": 0, "y": 0, **empty.viewport_size}
    assert empty.evaluate("document.elementFromPoint(innerWidth / 2, 4).closest('.presenting') !== null")
    empty.keyboard.press("Space")  # plays, and does not press the button again
    expect(empty.locator(".play")).to_have_attribute("aria-label", "Pause")
    empty.keyboard.press("Escape")
    expect(explorer).not_to_have_class(re.compile("presenting"))
    empty.wait_for_function("!document.fullscreenElement")


def test_address_and_link_keep_stage_and_present_view(empty: Page, address: str):
    opened(empty, address)
    empty.wait_for_function("history.state")  # the first entry keeps the address that was opened
    pin(empty, 4)
    empty.keyboard.press("Shift+Digit3")
    empty.context.grant_permissions(["clipboard-read", "clipboard-write"])
    empty.locator(".sharing .share").click()
    empty.get_by_role("menuitem", name="Copy link").click()
    expect(empty.locator(".sharing .said")).to_contain_text("Link copied")
    assert "step=5&stage=re-draft" in empty.evaluate("navigator.clipboard.readText()")
    for key, place in (("t", "&stage=re-draft&present=1"), ("Escape", "&stage=re-draft"), ("Shift+Digit6", "")):
        empty.keyboard.press(key)
        empty.wait_for_url(re.compile(f"step=5{place}$"))
    for key in ("Shift+Digit3", "t"):
        empty.keyboard.press(key)
    empty.wait_for_url(re.compile("step=5&stage=re-draft&present=1$"))
    opened(empty, empty.url)
    expect(empty.locator("#explorer .presenting")).to_have_attribute("data-stage", "re-draft")
    expect(view(empty)).to_have_attribute("data-pinned", "4")


def test_present_view_that_ended_before_full_screen_began_stays_ended(empty: Page, address: str):
    opened(empty, address)
    empty.evaluate("""() => {
      const real = Element.prototype.requestFullscreen;
      Element.prototype.requestFullscreen = function () {
        window.enter = () => real.call(this);
        return Promise.resolve();
      };
    }""")
    presenting = empty.locator("#explorer .presenting")
    for key, count in (("t", 1), ("Escape", 0), ("ArrowRight", 0)):  # a key press permits full screen
        empty.keyboard.press(key)
        expect(presenting).to_have_count(count)
    empty.evaluate("""async () => {
      const began = new Promise((go) => document.addEventListener("fullscreenchange", go, { once: true }));
      await enter();
      await began;
    }""")
    empty.wait_for_function("!document.fullscreenElement")
    expect(presenting).to_have_count(0)


def test_hands_are_counted_taken_back_and_revealed(show):
    page = show(SIZES[0], "present=1&quiz=1&step=4")
    step = presets.opening().trace().steps[3]
    text, following = page.locator("#text"), "".join(c.text for c in step.committed)
    expect(text).to_contain_text("The bear said", use_inner_text=True)
    expect(page.locator("#explorer .views")).not_to_contain_text(following.strip(), use_inner_text=True)
    assert page.locator("#timeline").is_hidden()
    page.get_by_role("button", name="Hands").click()
    for digit in "4455501":
        page.keyboard.press(digit)
    page.keyboard.press("Backspace")
    page.locator("#tree g.node[data-depth='4']").click()
    page.get_by_role("button", name="None: all accepted").click()
    votes = "3 for “will”, 3 for “help”, 2 for none"
    expect(page.locator("#sentence .parts")).to_have_text(votes)
    expect(page.locator("#strip .votes > text")).to_have_text(["3", "3", "2"])
    assert page.evaluate(FAULTS, [LEAST, False]) == []
    page.keyboard.press("Enter")
    expect(page.locator(".quiz .said")).to_contain_text(f"{votes}. “will” was rejected.")
    expect(text).to_contain_text(following, use_inner_text=True)
    assert page.evaluate(FAULTS, [LEAST, False]) == []
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#sentence .parts")).to_contain_text("Hands up!")
    expect(page.locator("#strip .votes > text")).to_have_count(0)
