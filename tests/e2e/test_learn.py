"""The tour as a person takes it, in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from app import presets
from tests.e2e.driving import PATIENCE, PHONE, view
from tests.scripts.node import stops_of

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def told():
    """The number of the step that the tour begins with, and its stops."""
    run = presets.opening()
    return run.instructive, stops_of(run.lines(outcomes=True))[run.instructive]["stops"]


@pytest.fixture
def learn(module_page: Page) -> Page:
    """The page with the tab Learn open at its first stop."""
    module_page.emulate_media(reduced_motion="no-preference")
    opened(module_page)
    to_stops(module_page)
    module_page.locator("#learn .dots button").first.click()
    return module_page


def opened(page: Page) -> Page:
    page.get_by_role("tab", name="Learn").click()
    expect(page.locator("#learn [data-ready=yes]")).to_be_attached(timeout=PATIENCE)
    return page


def to_stops(page: Page) -> None:
    """Leave the story, which the tab opens with, where it is still there."""
    if page.locator("#learn .story").is_visible():
        page.locator("#learn .story .head .on").click()


def stage(page: Page) -> Locator:
    return page.locator("#learn .stage .frame")


def still(page: Page) -> None:
    """Wait until nothing in the page moves any more."""
    page.wait_for_function(
        """async () => {
          const roots = (root) => [root, ...[...root.querySelectorAll('*')].filter((e) => e.shadowRoot).flatMap((e) => roots(e.shadowRoot))];
          const all = roots(document);
          const moving = () => all.some((root) => root.getAnimations().some((a) => a.playState === 'running' && a.effect.getComputedTiming().endTime < Infinity));
          // What a key or a click changes is drawn in the next frames, and only then begins to move.
          for (let frames = 0; frames < 5; frames = moving() ? 0 : frames + 1) await new Promise(requestAnimationFrame);
          return true;
        }"""
    )


def opacity(page: Page, part: str) -> float:
    """How visible a part of the live view is, all that it lies in taken together."""
    return (
        stage(page)
        .locator(part)
        .first.evaluate(
            """(e) => {
              let seen = 1;
              for (let at = e; at instanceof Element; at = at.parentElement) seen *= Number(getComputedStyle(at).opacity);
              return seen;
            }"""
        )
    )


VISIBLE = "es => es.filter((e) => Number(getComputedStyle(e).opacity) > 0.05).length"
LOOKS = """es => [...new Set(es.map((e) => {
  const s = getComputedStyle(e);
  return [s.fill, s.stroke, s.strokeWidth, s.strokeDasharray].join();
}))]"""
ABOVE = (
    "e => e.getBoundingClientRect().bottom <= e.closest('.card').querySelector('.ways').getBoundingClientRect().top + 1"
)
# What lights up at a stop, what has not happened yet, and nodes that must look alike until they are checked.
LIT = {
    "anchor": (".node.anchor .shape", ".node.first .label", None),
    "draft": (".node.first .label", "#strip .bars", ".node.first .shape"),
    "confidence": ("#strip .bars .bar", "#strip .posterior", None),
    "boundary": ("#strip .flag", ".node.second", None),
    "branches": (".node.second .shape", ".ghost", ".node.second .shape"),
    "cost": (".node.anchor .shape", None, None),
    "verify": (".node.accepted .shape", ".node.bonus", None),
    "commit": (".node.bonus", None, None),
    "temperature": (".node.bonus", None, None),
}


def test_story_on_phone_follows_scrolling_and_keys_to_stops(phone: Page, told):
    number, stops = told
    step = presets.opening().trace().steps[number]
    story, sections = opened(phone).locator("#learn .story"), phone.locator("#learn .story section")
    frames = ("plain", "draft", "rejection", "redraft", "tree", "cost")
    expect(sections).to_have_count(len(frames))
    expect(story).to_have_attribute("data-frame", "plain")
    assert story.locator(".cell.first").evaluate_all(VISIBLE) == 0
    for at, frame in enumerate(frames[1:4], 1):
        sections.nth(at).evaluate(f"e => scrollBy(0, e.getBoundingClientRect().top - {PHONE['height'] / 2})")
        expect(story).to_have_attribute("data-frame", frame)
        expect(story.locator(".picture")).to_be_in_viewport(ratio=0.7)
    expect(sections.nth(1)).to_contain_text(f"guesses {len(step.first_draft.ids)} tokens")
    expect(story.locator(".cell.first.wrong text").first).to_have_text(
        step.first_draft.texts[step.actual_boundary].replace(" ", "␣")
    )
    assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for frame in frames[4:]:
        phone.keyboard.press("ArrowRight")
        expect(story).to_have_attribute("data-frame", frame)
        assert story.locator(".cell.copy").evaluate_all(VISIBLE) == 0  # a node of the tree is drawn once
    expect(story.locator(".costs")).to_contain_text("plain steps")
    phone.keyboard.press("ArrowRight")
    expect(story).to_be_hidden()
    expect(phone.locator("#learn .card > h3")).to_have_text(stops[0]["title"])
    phone.locator("#learn-back").click()
    expect(story).to_have_attribute("data-frame", "plain")
    phone.wait_for_function("location.search.includes('stop=0')")  # an address is written from the second place on


def test_stops_fit_phone_and_last_one_opens_step_in_explore(phone: Page, told):
    number, stops = told
    to_stops(opened(phone))
    for at in range(len(stops) + 1):
        phone.locator("#learn .dots button").nth(at).click()
        expect(phone.locator("#learn .dots [aria-current=step]")).to_have_text("K" if at == len(stops) else str(at + 1))
        expect(phone.locator("#learn .card > h3")).to_be_in_viewport()
        still(phone)
        assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        if at < 4:  # the block is read from its start
            anchor = stage(phone).locator(".node.anchor").bounding_box()
            assert anchor
            assert 0 < anchor["x"] < 80
    phone.locator("#learn-open").click()
    expect(view(phone)).to_have_attribute("data-run", presets.opening().header["run"])
    expect(view(phone)).to_have_attribute("data-pinned", str(number))
    expect(phone.locator("#branches input")).to_be_focused()


def test_stops_by_keyboard_highlight_parts_and_reveal_outcome_last(learn: Page, told):
    number, stops = told
    heading = learn.locator("#learn .card > h3")
    spoken = learn.locator("#learn .card > [aria-live=polite]")
    for at, stop in enumerate(stops):
        if at:
            learn.keyboard.press("ArrowRight")
        expect(heading).to_have_text(stop["title"])
        expect(stage(learn)).to_have_attribute("data-stop", stop["id"])
        expect(learn.locator("#learn .where")).to_have_text(
            f"Step {number + 1} of a recorded run · stop {at + 1} of {len(stops)}"
        )
        assert spoken.locator("dd").count() == (0 if stop["odds"] else len(stop["numbers"]))
        assert spoken.locator(".draws tbody tr").count() >= len(stop["odds"])
        assert len(spoken.text_content() or "") > 100
        expect(learn.locator("#learn .dots [aria-current=step]")).to_have_text(str(at + 1))
        still(learn)
        lit, dark, alike = LIT[stop["id"]]
        assert opacity(learn, lit) > 0.9
        assert dark is None or opacity(learn, dark) == 0
        assert alike is None or len(stage(learn).locator(alike).evaluate_all(LOOKS)) == 1
        assert learn.locator("#learn .card .body").evaluate(ABOVE)  # nothing lies under the buttons
        if at:
            expect(heading).to_be_focused()
        if stop["id"] == "branches":
            expect(stage(learn).locator("#tree .more")).to_have_count(0)  # all re-drafts are in view
            learn.keyboard.press("Escape")
            expect(stage(learn)).to_have_attribute("data-stop", "all")
            still(learn)
            assert opacity(learn, ".node.bonus") == 1
            learn.keyboard.press("Escape")
            expect(stage(learn)).to_have_attribute("data-stop", "branches")
    learn.keyboard.press("ArrowLeft")
    expect(heading).to_have_text(stops[-2]["title"])
    # in a dialog Esc closes that, and nothing behind it
    dialog = stage(learn).locator("dialog.help")
    learn.evaluate("document.activeElement.blur()")
    learn.keyboard.press("?")
    expect(dialog).to_be_visible()
    learn.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(learn.locator("#learn [data-ready=yes]")).to_have_attribute("data-everything", "false")


def test_walk_draws_and_live_settings_match_step(learn: Page, told):
    _, stops = told
    learn.emulate_media(reduced_motion="reduce")
    visits = next(stop["walk"] for stop in stops if stop["id"] == "verify")
    learn.locator("#learn .dots button").nth(5).click()
    expect(learn.locator(".walk .said")).to_contain_text("At the anchor")
    expect(learn.locator("#learn .values")).to_be_hidden()  # nothing of the outcome before the walk
    assert stage(learn).locator(".node:not(.anchor):not(.unwalked)").count() == 0
    learn.locator("#walk-next").click()
    expect(learn.locator(".walk .said")).to_contain_text(f"Node 1 of {len(visits)}")
    assert stage(learn).locator(".node[data-depth='1'].unwalked").count() == 0
    while learn.locator("#walk-next").is_enabled():
        learn.locator("#walk-next").click()
    expect(learn.locator("#learn .values")).to_be_visible()
    learn.locator("#learn .dots button").nth([stop["id"] for stop in stops].index("temperature")).click()
    for _ in range(5):
        learn.get_by_role("button", name="Draw 100 times").click()
    counts = [int(words.split(",")[0]) for words in learn.locator(".draws tbody td:last-child").all_text_contents()]
    assert sum(counts) == 500
    expect(learn.locator(".draws .said")).to_contain_text("of 500 draws accepted a drafted token")
    live = presets.lesson()["live"]
    if live is None:
        pytest.skip("no live settings were recorded")
    prefill = presets.opening().trace().prefill
    begun = "".join(token.text for token in prefill.committed)  # by the pass over the prompt
    learn.locator("#learn .dots button").last.click()
    seen = []
    for at in range(int(learn.locator("#live-k").get_attribute("max") or 0) + 1):
        learn.locator("#live-k").fill(str(at))
        seen.append(learn.locator(".live .figures").first.text_content())
        assert learn.locator(".cut span").count() == int((seen[-1] or "").split()[0])
        assert learn.locator(".cut p").text_content() == begun + "".join(live["tokens"])
    assert len(set(seen)) == len(seen)
