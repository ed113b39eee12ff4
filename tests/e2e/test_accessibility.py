"""Accessibility of every tab in both themes, checked by axe-core, and the page on a phone: one column, every tab and tool in sight."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from app import presets
from tests.e2e.driving import STILL, drawn_figure, fold, measure_what, open_tab, pin, unfold

pytestmark = pytest.mark.e2e
SEVERE = ("serious", "critical")
# All rules check the light theme; in the dark one, only the results of these can differ.
COLOUR_RULES = ["color-contrast", "link-in-text-block"]
DARK = "dark => document.body.classList.toggle('dark', dark)"
# axe also walks what is hidden, so the tab with most elements is last
TABS = ["Explore", "Race", "Learn", "Calibrate"]

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
    seen: all('#text .tok.shown').every((e) => box(e).top >= box(document.querySelector('#text')).top - 1 && box(e).bottom <= box(document.querySelector('#text')).bottom + 1),
    cut: all('#text').some((e) => e.scrollTop % parseFloat(getComputedStyle(e).lineHeight)),
  };
}"""


def severe(page: Page, part: str | None = None) -> list[str]:
    """Returns the serious and critical violations in this part of the page, in both themes, with their elements."""
    page.evaluate(STILL)
    violations = Axe().run(page, part, {"resultTypes": ["violations"]}).response["violations"]
    page.evaluate(DARK, True)
    page.evaluate(STILL)
    violations += Axe().run(page, part, {"runOnly": COLOUR_RULES}).response["violations"]
    page.evaluate(DARK, False)
    return [
        f"{v['id']} ({v['impact']}): {node['html'][:160]}"
        for v in violations
        if v["impact"] in SEVERE
        for node in v["nodes"]
    ]


@pytest.mark.parametrize("tab", TABS)
def test_tab_has_no_serious_violation(module_page: Page, tab: str):
    open_tab(module_page, tab)
    if tab == "Learn":
        for chapter in ("Prepare", "When it pays", "Sampling"):
            module_page.locator(f"#learn .rail button[title='{chapter}']").click()
            for summary in module_page.locator("#learn .asked summary").all():
                summary.click()
            assert severe(module_page, None if chapter == "Prepare" else "#learn") == []
        return
    if tab == "Calibrate":
        measure_what(module_page, "The run in Explore")
        drawn_figure(module_page, "uniform")
    assert severe(module_page) == []
    for name, part in (("When does it pay?", ".pays"), ("Details", "#details")) if tab == "Explore" else ():
        opener = module_page.locator("#explorer").get_by_role("button", name=name)
        opener.click()
        assert severe(module_page, part) == []
        opener.click()
    unfold(module_page)
    assert severe(module_page, "#drawer") == []
    fold(module_page)


def test_phone_shows_everything_in_one_column(phone: Page):
    # the drawing is close below the buttons, and the first rejected node is in view, not only the root
    tree = phone.locator("#tree").bounding_box()
    assert tree["y"] < 720
    wrong = phone.locator("#tree g.node[data-state='rejected']").first
    box = wrong.bounding_box()
    assert tree["x"] < box["x"] < tree["x"] + tree["width"] - box["width"]
    wrong.locator(".shape").tap(force=True)  # a tap opens the card
    expect(phone.locator("#explorer #details")).to_contain_text("Rejected")
    expect(phone.locator("#explorer #details")).to_be_in_viewport()
    expect(phone.locator("#explorer .tip")).to_be_hidden()
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
        assert drawn["seen"]
        assert drawn["text"] == "".join(c.text for c in step.committed)

    for name in ("Race", "Calibrate", "Learn", "Explore"):
        open_tab(phone, name)
        for width in (320, 390):
            phone.set_viewport_size({"width": width, "height": 844})
            box = phone.get_by_role("tab", name=name, exact=True).bounding_box()
            assert 0 <= box["x"] < box["x"] + box["width"] <= width
            assert phone.evaluate("document.documentElement.scrollWidth") <= width + 2
