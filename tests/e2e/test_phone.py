"""Explore on a screen as wide as a phone's, in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from app import presets
from tests.e2e.driving import PHONE, opened, view

pytestmark = pytest.mark.e2e


def test_a_finger_gets_the_card_where_it_taps(browser, address):
    context = browser.new_context(viewport=PHONE, is_mobile=True, has_touch=True)
    page = context.new_page()
    opened(page, address)
    page.locator("#tree g.node[data-state='rejected'] .shape").first.tap(force=True)
    expect(page.locator("#explorer .tip")).to_contain_text("Rejected")
    context.close()


def test_one_column_on_a_phone(phone: Page):
    assert phone.evaluate("document.documentElement.scrollWidth") <= 392
    # the drawing follows the buttons closely; the settings are folded away until they are asked for
    tree = phone.locator("#tree").bounding_box()
    assert tree
    assert tree["y"] < 520
    # where the draft went wrong is in view, not only its beginning
    wrong = phone.locator("#tree g.node[data-state='rejected']").first.bounding_box()
    assert wrong
    assert tree["x"] < wrong["x"] < tree["x"] + tree["width"] - wrong["width"]
    # the likeliest boundary says where it is, and is drawn over the others
    likeliest = phone.locator("#strip .flag").last
    assert likeliest.locator("text").first.text_content() == "1"
    at = phone.locator("#strip").evaluate("""strip => {
      const x = Number(/\\((.+),/.exec([...strip.querySelectorAll('.flag')].pop().getAttribute('transform'))[1]);
      if (x <= 46) return 1; // the title of the line stands there
      return [...strip.querySelectorAll('.end')].filter((e) => Math.abs(e.getAttribute('x') - x) < 1).length;
    }""")
    assert at == 1
    expect(phone.locator("#method")).to_be_hidden()
    phone.locator("#fold button").click()
    expect(phone.locator("#method")).to_be_visible()
    phone.locator("#fold button").click()


def test_every_tool_of_a_folded_tree_is_in_sight_on_a_phone(phone: Page):
    phone.evaluate("document.querySelector('#explorer .drawing .tools button').hidden = false")  # “+22 nodes”
    phone.evaluate("document.querySelector('#explorer .drawing .tools button').textContent = '+22 nodes'")
    panel = phone.locator("#explorer .drawing").bounding_box()
    for tool in phone.locator("#explorer .drawing .tools button:visible").all():
        box = tool.bounding_box()
        assert box
        assert panel
        assert panel["x"] <= box["x"] < box["x"] + box["width"] <= panel["x"] + panel["width"]
    phone.evaluate("document.querySelector('#explorer .drawing .tools button').hidden = true")


def test_every_tab_is_in_sight_on_a_phone(phone: Page, address):
    for width in (320, 390):
        phone.set_viewport_size({"width": width, "height": 844})
        opened(phone, address)
        for name in ("Explore", "Race", "Compare", "Calibrate", "Learn"):
            box = phone.get_by_role("tab", name=name, exact=True).bounding_box()
            assert box
            assert 0 <= box["x"] < box["x"] + box["width"] <= width


FLAGS = """strip => {
  const at = [...strip.querySelectorAll('.flag')].map((f) => Number(/\\((.+),/.exec(f.getAttribute('transform'))[1]));
  const x = at[at.length - 1];
  return { beside: at.some((other) => other > x && other < x + 48), told: strip.querySelector('.flag:last-of-type .r')?.textContent ?? '' };
}"""


def test_the_true_boundary_says_how_likely_it_was_on_a_phone(phone: Page):
    """Unless another flag stands in the number's place, whether it was the likeliest or not; and so does the likeliest."""
    alone = 0
    told = {"likeliest": 0, "other": 0}
    for number in range(int(view(phone).get_attribute("data-steps"))):
        view(phone).evaluate(
            "(shown, step) => shown.dispatchEvent(new CustomEvent('explorer:select', { detail: { step } }))", number
        )
        expect(view(phone)).to_have_attribute("data-pinned", str(number))
        if phone.locator("#strip .flag").count():
            flags = phone.locator("#strip").evaluate(FLAGS)
            assert flags["beside"] or flags["told"].startswith((".", "<"))
            alone += not flags["beside"]
        hit = phone.locator("#strip .flag.hit")
        if hit.count() and hit.locator(".r").count():
            told["likeliest" if hit.locator("text").first.text_content() == "1" else "other"] += 1
    assert min(told.values()) > 0, told
    assert alone


NARROW = """() => {
  const box = (e) => e.getBoundingClientRect();
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
  const all = (what) => [...document.querySelectorAll('#explorer ' + what)];
  const numbers = all('#strip .flag text:first-of-type').map(box);
  const shapes = all('#tree .node > .shape').map(box);
  return {
    flags: numbers.every((a, n) => numbers.slice(0, n).every((b) => apart(a, b))),
    shapes: shapes.every((a, n) => shapes.slice(0, n).every((b) => apart(a, b))),
    halo: all('#tree .lane').every((e) => parseFloat(getComputedStyle(e).strokeWidth) >= 6),
    long: all('#tree .lane').some((e) => e.textContent.includes('re-draft') && box(e).right > box(document.querySelector('#tree')).right),
    tree: all('#tree .node:is(.accepted, .bonus) .label').map((e) => e.textContent),
    path: all('.path .tok').map((e) => e.textContent),
  };
}"""


def test_every_word_of_the_path_can_be_read_on_a_narrow_screen(phone: Page):
    steps = presets.opening().trace().steps
    in_path = 0
    for width, most in ((390, len(steps)), (640, 5)):  # the second is a laptop at 200%
        phone.set_viewport_size({"width": width, "height": 844})
        for number, step in enumerate(steps[:most]):
            view(phone).evaluate(
                "(shown, step) => shown.dispatchEvent(new CustomEvent('explorer:select', { detail: { step } }))", number
            )
            expect(phone.locator("#sentence b")).to_have_text(f"Step {number + 1} ")
            drawn = phone.evaluate(NARROW)
            assert drawn["flags"], f"flags overlap in step {number + 1}"
            assert drawn["shapes"], f"nodes overlap in step {number + 1}"
            assert drawn["halo"]
            assert not drawn["long"]
            words = [c.text.replace(" ", "␣").replace("\n", "↵") or "<|endoftext|>" for c in step.committed]
            assert drawn["path"] == words or drawn["tree"][: len(words) - 1] == words[:-1]
            in_path += drawn["path"] == words
    assert in_path > 5
    phone.set_viewport_size(PHONE)
