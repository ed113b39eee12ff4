"""Learn in a real browser."""

from __future__ import annotations

from itertools import accumulate

import pytest
from playwright.sync_api import Locator, Page, expect

from app import presets
from d2sd.trace.run import Origin
from tests.e2e.driving import PHONE, pin, view
from tests.scripts.node import chapters_of

pytestmark = pytest.mark.e2e
# whether a part of the drawing is fully visible (``wholly``) or hidden, ancestors included
VISIBLE = """([part, wholly]) => {
  let seen = 1;
  const found = document.querySelector("#learn .stage").shadowRoot.querySelector(part);
  for (let at = found; at instanceof Element; at = at.parentElement) {
    const { opacity, visibility, display } = getComputedStyle(at);
    seen *= display === "none" || visibility === "hidden" ? 0 : Number(opacity);
  }
  return wholly ? found && seen > 0.9 : !found || seen === 0;
}"""
FRAMES = "async () => { for (let n = 0; n < 5; n += 1) await new Promise(requestAnimationFrame); }"
# words and accepted nodes of drawings that are cut off at the top or bottom
OUTSIDE = """(drawings) => drawings.flatMap((drawing) => {
  const { top, bottom } = drawing.getBoundingClientRect();
  return [...drawing.querySelectorAll(".node.accepted > .shape, .lane:not(.yet), text.boundary, .value, .flag text")]
    .filter((part) => part.checkVisibility({ checkVisibilityCSS: true, checkOpacity: true }))
    .filter((part) => part.getBoundingClientRect().top < top - 1 || part.getBoundingClientRect().bottom > bottom + 1)
    .map((part) => part.textContent);
})"""
CUT = "es => es.filter((e) => e.textContent.endsWith('…')).map((e) => e.textContent)"
# by chapter: a part that is visible at its end, and a part that only appears later
SEEN = {
    "One by one": (".wish .label", ".node.first"),
    "Guess ahead": (".nodes .first .label", "#strip"),
    "Doubt": ("#strip .bar", ".node.second"),
    "Prepare": (".row", ".boundary"),
    "Merge": (".nodes .second .label", ".boundary"),
    "One pass": (".node.bonus", None),
    "What it buys": (".node.accepted.second", None),
    "When it pays": (".pays .passes", "#text"),
}


@pytest.fixture(scope="module")
def told():
    """The number of the step that Learn explains, and its chapters."""
    run = presets.opening()
    steps = chapters_of(run.segment(origin=Origin(recorded=True)).splitlines())
    return run.instructive, steps[run.instructive]["chapters"]


@pytest.fixture
def learn(module_page: Page) -> Page:
    """The page with the tab Learn open at its first chapter, and with reduced motion."""
    module_page.emulate_media(reduced_motion="reduce")
    opened(module_page)
    module_page.locator("#learn .rail button").first.click()
    return module_page


def opened(page: Page) -> Page:
    page.get_by_role("tab", name="Learn").click()
    expect(page.locator("#learn [data-ready=yes]")).to_be_attached()
    return page


def title(page: Page) -> Locator:
    return page.locator("#learn .words > h3")


SCROLLING = """(stage) => [stage.previousElementSibling, ...stage.shadowRoot.querySelectorAll("*")]
  .filter((part) => /auto|scroll/.test(getComputedStyle(part).overflowY) && part.scrollHeight > part.clientHeight + 1)
  .filter((part) => getComputedStyle(part).pointerEvents !== "none")
  .map((part) => part.className || part.id)"""


def at_chapter(page: Page, number: int) -> None:
    expect(page.locator("#learn [data-chapter]")).to_have_attribute("data-chapter", str(number))


def test_keys_lead_through_chapters_and_each_shows_its_part(learn: Page, told):
    expect(learn.locator("#learn .rail li:not(.appendix)")).to_have_count(8)
    for at, chapter in enumerate(told[1]):
        if at:
            learn.keyboard.press("ArrowRight")
            expect(title(learn)).to_be_focused()
        expect(title(learn)).to_have_text(chapter["title"])
        expect(learn.locator("#learn .rail [aria-current=step]")).to_have_text(f"{at + 1} {chapter['name']}")
        assert learn.locator("#learn .body > p").all_text_contents() == chapter["say"]
        seen, later = SEEN[chapter["name"]]
        learn.wait_for_function(VISIBLE, arg=[seen, True])
        if later is not None:
            learn.wait_for_function(VISIBLE, arg=[later, False])


@pytest.mark.parametrize("width", [1440, 1280])
def test_labels_are_whole_and_drawing_fills_two_thirds(learn: Page, width):
    learn.set_viewport_size({"width": width, "height": 900 if width == 1440 else 720})
    for chapter in learn.locator("#learn .rail button").all()[:7]:
        chapter.click()
        learn.evaluate(FRAMES)  # a click is drawn in the next frames
        assert learn.locator("#learn .stage #tree .label").evaluate_all(CUT) == []
        scene, stage = learn.locator("#learn .scene").bounding_box(), learn.locator("#learn .stage").bounding_box()
        assert stage["width"] > 0.66 * scene["width"]
        assert scene["y"] + scene["height"] <= learn.viewport_size["height"]
    learn.set_viewport_size({"width": 1440, "height": 900})


def test_scrolling_changes_chapter_and_picture_stays(module_page: Page):
    module_page.emulate_media(reduced_motion="no-preference")
    opened(module_page)
    module_page.locator("#learn .rail button").first.click()
    at_chapter(module_page, 1)
    scene = module_page.locator("#learn .scene")
    place = scene.bounding_box()
    pitch = module_page.evaluate("0.6 * innerHeight")
    module_page.mouse.move(1000, 400)  # over the drawing
    for chapter in (2, 3):
        module_page.mouse.wheel(0, pitch)
        at_chapter(module_page, chapter)
        assert scene.bounding_box() == place


def test_story_plays_to_its_end(page: Page):
    page.clock.install()
    page.get_by_role("tab", name="Learn").click()
    ready, play = page.locator("#learn [data-ready=yes]"), page.locator("#learn .ways .play")
    while not ready.count():
        page.clock.run_for(50)
    at_chapter(page, 1)
    page.keyboard.press("Space")
    expect(play).to_have_attribute("aria-label", "Pause")
    seen = []
    for _ in range(75):
        page.clock.run_for(2000)
        if (now := page.locator("#learn [data-chapter]").get_attribute("data-chapter")) not in seen:
            seen.append(now)
        if play.get_attribute("aria-label") != "Pause":
            break
    assert seen == [str(number) for number in range(1, 9)]
    expect(play).to_have_attribute("aria-label", "Play the story")


def test_story_is_offered_until_it_was_taken(phone: Page):
    offer = phone.get_by_role("button", name="Show me in 2 minutes")
    expect(offer).to_be_visible()
    offer.click()
    at_chapter(phone, 1)
    expect(offer).to_be_hidden()
    phone.reload()
    expect(phone.get_by_role("tab", name="Learn")).to_be_visible()
    expect(offer).to_be_hidden()


def test_chapters_fit_phone_and_last_one_leads_to_explore(phone: Page, told):
    number, chapters = told
    opened(phone)
    for at, chapter in enumerate(chapters):
        if at:
            phone.locator("#learn-next").click()
        expect(title(phone)).to_have_text(chapter["title"])
        expect(title(phone)).to_be_in_viewport()
        assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        expect(phone.locator("#learn-next")).to_be_in_viewport()
        assert phone.locator("#learn .stage").evaluate(SCROLLING) == []  # the page scrolls as one
        # the drawing also fits a phone with its browser's bars, and a low window
        for width in (PHONE["width"], 800) if chapter != chapters[7] else ():
            phone.set_viewport_size({"width": width, "height": 664})
            phone.evaluate(FRAMES)
            expect(phone.locator("#learn .stage #text")).to_be_hidden()
            assert phone.locator("#learn .stage :is(#tree, #strip)").evaluate_all(OUTSIDE) == []
        phone.set_viewport_size(PHONE)
    phone.locator("#learn-open").click()
    expect(view(phone)).to_have_attribute("data-run", presets.opening().header["run"])
    expect(view(phone)).to_have_attribute("data-pinned", str(number))
    opened(phone).locator("#learn .on").get_by_role("button", name="Quiz").click()
    expect(phone.locator("#explorer [data-quiz]").first).to_have_attribute("data-quiz", "asking")


def test_explain_tells_step_of_explore_and_leads_back_to_it(module_page: Page, told):
    other = told[0] + 1
    module_page.emulate_media(reduced_motion="reduce")
    module_page.get_by_role("tab", name="Explore").click()
    pin(module_page, other)
    module_page.locator("#explain").first.click()
    expect(module_page.locator("#learn .whose")).to_contain_text(f", step {other + 1} ")
    module_page.locator("#learn .rail [title='When it pays']").click()
    module_page.locator("#learn-open").click()
    expect(view(module_page)).to_have_attribute("data-pinned", str(other))
    module_page.locator("#explain").first.click()
    module_page.get_by_role("button", name="Back to the example").click()
    expect(module_page.locator("#learn .whose")).to_have_text("From a recorded run")


def test_draws_match_recording(learn: Page):
    learn.locator("#learn .rail button").last.click()
    drawn = learn.locator("#learn #tree")
    states = "nodes => nodes.map((node) => [node.dataset.node, node.dataset.state])"
    recorded = drawn.locator(".nodes .node").evaluate_all(states)
    expect(drawn.locator(".odds")).to_have_count(0)
    for _ in range(5):
        learn.get_by_role("button", name="Draw 100 times").click()
    expect(learn.locator(".draws .said")).to_contain_text("draw 500")
    shown = set()
    for _ in range(8):
        learn.get_by_role("button", name="Draw again").click()
        expect(drawn.locator(".odds").first).to_be_attached()
        shown.add(str(drawn.locator(".nodes .node").evaluate_all(states)))
    assert len(shown) > 1
    learn.locator("#learn .rail button").nth(6).click()
    expect(drawn.locator(".odds")).to_have_count(0)
    assert drawn.locator(".nodes .node").evaluate_all(states) == recorded  # a chapter shows the step as recorded


def test_other_settings_match_replays_and_fade_branches(learn: Page):
    """Exactly the steps of the engine with these settings: see tests/app/test_learn.py."""
    replays = presets.lesson()
    run_k, gamma = replays["own"]
    points = {k: committed for k, g, committed, _ in replays["points"] if g == gamma}
    learn.locator("#learn .rail button[title='When it pays']").click()
    by_hand = learn.locator("#learn .by-hand")
    by_hand.locator("summary").click()
    tokens = [c.text for step in presets.opening().trace().steps for c in step.committed]
    redrafts = learn.locator("#learn #tree .node.second:visible")
    whole = redrafts.count()
    for at, (k, committed) in enumerate(points.items()):
        learn.locator("#learn #by-hand-k").fill(str(at))
        expect(by_hand.locator("output").first).to_have_text(str(k))
        expect(by_hand.locator(".figures")).to_contain_text(f"{len(committed)} steps of ")
        pieces = by_hand.locator(".cut span").all_text_contents()
        assert pieces == [
            "".join(tokens[end - n : end]) for n, end in zip(committed, accumulate(committed), strict=True)
        ]
        assert (redrafts.count() == whole) == (k >= run_k)
    learn.locator("#learn #by-hand-k").fill("0")
    expect(redrafts).to_have_count(0)
    learn.locator("#learn .rail button").nth(6).click()
    expect(redrafts).to_have_count(whole)  # a chapter shows the step as recorded
