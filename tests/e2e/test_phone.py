"""The page on a phone, in a real browser: one column, every tab and tool in sight, and a tree that can be read."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from app import presets
from tests.e2e.driving import fold, open_tab, pin, unfold

pytestmark = pytest.mark.e2e

NARROW = """() => {
  const box = (e) => e.getBoundingClientRect();
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
  const all = (what) => [...document.querySelectorAll('#explorer ' + what)];
  const numbers = all('#strip .flag text').map(box);
  const shapes = all('#tree .node > .shape').map(box);
  return {
    flags: numbers.every((a, n) => numbers.slice(0, n).every((b) => apart(a, b))),
    shapes: shapes.every((a, n) => shapes.slice(0, n).every((b) => apart(a, b))),
    long: all('#tree .lane').some((e) => box(e).right > box(document.querySelector('#tree')).right),
    text: all('#text .tok.shown').map((e) => e.textContent).join(''),
    cut: all('#text').some((e) => e.scrollTop % parseFloat(getComputedStyle(e).lineHeight)),
  };
}"""


def test_phone_shows_everything_in_one_column(phone: Page):
    # the drawing is close below the buttons, and the first rejected node is in view, not only the root
    tree = phone.locator("#tree").bounding_box()
    assert tree["y"] < 640
    wrong = phone.locator("#tree g.node[data-state='rejected']").first
    box = wrong.bounding_box()
    assert tree["x"] < box["x"] < tree["x"] + tree["width"] - box["width"]
    wrong.locator(".shape").tap(force=True)  # a tap opens the card
    expect(phone.locator("#explorer .tip")).to_contain_text("Rejected")
    expect(phone.locator("#method")).to_be_hidden()  # in the drawer, which is closed at first
    unfold(phone)
    expect(phone.locator("#method")).to_be_visible()
    fold(phone)

    panel = phone.locator("#explorer .drawing").bounding_box()
    for tool in phone.locator("#explorer .drawing .tools button:visible").all():
        box = tool.bounding_box()
        assert panel["x"] <= box["x"] < box["x"] + box["width"] <= panel["x"] + panel["width"]

    # the text shows the tokens of the step, and nothing overlaps
    for number, step in enumerate(presets.opening().trace().steps):
        pin(phone, number)
        expect(phone.locator("#follow")).to_contain_text(f"Step {number + 1} of ")
        drawn = phone.evaluate(NARROW)
        assert drawn["flags"], f"flags overlap in step {number + 1}"
        assert drawn["shapes"], f"nodes overlap in step {number + 1}"
        assert not drawn["long"]
        assert not drawn["cut"]
        assert drawn["text"] == "".join(c.text for c in step.committed)

    for name in ("Race", "Calibrate", "Learn", "Explore"):
        open_tab(phone, name)
        for width in (320, 390):
            phone.set_viewport_size({"width": width, "height": 844})
            box = phone.get_by_role("tab", name=name, exact=True).bounding_box()
            assert 0 <= box["x"] < box["x"] + box["width"] <= width
            assert phone.evaluate("document.documentElement.scrollWidth") <= width + 2
