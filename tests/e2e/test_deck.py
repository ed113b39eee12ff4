"""A deck as a lecturer makes it on the page, and as it is shown from a disk: to an audience, beside the speaker's window."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from app.deck import LESSON, deck_page
from app.history import History
from app.presets import opening, second
from app.record import recorded_race
from tests.e2e.driving import PATIENCE, opened, unfold, window
from tests.e2e.test_learn import opened as opened_learn
from tests.e2e.test_learn import to_stops

pytestmark = pytest.mark.e2e

HOSTILE = "<img src=x onerror=window.pwned=1></script><script>window.pwned=1</script>"


def cards(page: Page):
    return page.locator("#runs .deck li")


def pin(page: Page) -> None:
    page.locator("#explorer .share").click()
    page.get_by_role("menuitem", name="Pin").click()


def test_steps_and_stops_are_pinned_put_in_order_by_keys_and_outlive_a_reload(browser, address):
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    with window(context, address) as page:
        page.keyboard.press("Home")
        pin(page)
        opened_learn(page)
        to_stops(page)
        page.locator("#learn .dots button").nth(2).click()
        page.locator("#learn-pin").click()
        page.get_by_role("tab", name="Explore").click()
        unfold(page, "#fold-runs")
        page.get_by_role("button", name="Pin the race").click()
        expect(cards(page)).to_have_count(3)
        cards(page).nth(1).locator("[name=title]").fill(HOSTILE)
        cards(page).nth(1).locator("[name=title]").press("Alt+ArrowUp")
        expect(cards(page).nth(0).locator("[name=title]")).to_be_focused()
        cards(page).nth(0).locator("[name=notes]").fill("say this")
        page.locator("#runs .deck li [data-act=down]").nth(1).press("Enter")
        shown = [what.split(",")[0] for what in page.locator("#runs .deck .what").all_text_contents()]
        assert shown == [
            f"step {int(page.locator('#learn [data-step]').first.get_attribute('data-step')) + 1}",
            "Race",
            "step 1",
        ]
        opened(page, address)
        unfold(page, "#fold-runs")
        expect(cards(page)).to_have_count(3)
        expect(cards(page).nth(0).locator("[name=title]")).to_have_value(HOSTILE)
        page.locator("#runs .deck summary").click()
        with page.expect_download(timeout=PATIENCE) as made:
            page.get_by_role("button", name="Deck file").click()
        assert made.value.suggested_filename == "d2sd-deck.html"
        assert "say this" in made.value.path().read_text("utf-8")
        assert page.evaluate("window.pwned") is None
        page.evaluate("sessionStorage.clear()")
    context.close()


@pytest.fixture
def deck(tmp_path):
    history = History()
    keys = [history.keep(run, "Recorded").key for run in (opening(), second())]
    blank = {"step": None, "node": None, "stop": 0, "title": "", "question": "", "notes": ""}
    raw = [
        {
            **blank,
            "view": "explore",
            "key": keys[1],
            "step": 3,
            "node": 2,
            "title": HOSTILE,
            "question": HOSTILE,
            "notes": HOSTILE,
        },
        {**blank, "view": "quiz", "key": keys[0], "step": 2, "title": "Guess", "notes": "wait"},
        {**blank, "view": "learn", "key": keys[0], "step": 1, "stop": 3},
        {**blank, "view": "learn", "key": LESSON, "step": 7, "stop": 10, "title": "K"},
        {**blank, "view": "race", "title": "Race"},
    ]
    path = tmp_path / "deck.html"
    path.write_text(deck_page(history, raw), "utf-8")
    return path


def test_a_deck_is_led_through_from_either_window_without_a_network(browser, deck):
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    faults = []
    context.on("weberror", lambda error: faults.append(str(error.error)))
    context.on("request", lambda request: None if request.url.startswith(deck.as_uri()) else faults.append(request.url))
    page = context.new_page()
    page.goto(deck.as_uri())
    view = page.locator("#explorer[data-run]")
    expect(view).to_have_attribute("data-pinned", "3", timeout=PATIENCE)
    expect(view).to_have_attribute("data-node", "2")
    expect(page.locator(".bar h2")).to_have_text(HOSTILE)
    expect(page.locator("body")).not_to_contain_text("wait")
    with context.expect_page() as other:
        page.get_by_role("button", name="Speaker").click()
    speaker = other.value
    expect(speaker.locator(".speaking .notes")).to_have_text(HOSTILE, timeout=PATIENCE)
    expect(speaker.locator(".speaking h3")).to_have_text("Next: Guess")
    expect(speaker.locator("#explorer .quiz")).to_be_visible(timeout=PATIENCE)  # the next card, drawn
    expect(speaker.locator(".speaking .clock")).to_have_text("0:02")

    speaker.keyboard.press("ArrowRight")
    expect(page.locator(".bar .count")).to_have_text("2 / 5")
    expect(page.locator("#explorer .quiz .said")).to_contain_text("Where will the first draft be rejected?")
    expect(view).to_have_attribute("data-pinned", "2")
    expect(speaker.locator(".speaking .notes")).to_have_text("wait")
    page.keyboard.press("PageDown")  # a clicker at the audience's window
    expect(page.locator("#tour .where")).to_contain_text("Step 2 of a recorded run · stop 3", timeout=PATIENCE)
    expect(speaker.locator(".speaking h2")).to_have_text("3 / 5")
    page.locator("#card-next").click()
    expect(page.locator("#tour #live-k")).to_be_visible(timeout=PATIENCE)
    page.reload()
    expect(page.locator(".bar .count")).to_have_text("4 / 5")
    expect(page.locator("#tour #live-k")).to_be_visible(timeout=PATIENCE)
    speaker.locator("#card-next").click()  # the windows know each other after a reload as well
    expect(page.locator("#race .tracks .track")).to_have_count(len(recorded_race().lanes))
    expect(page.get_by_role("button", name="Copy link")).to_be_hidden()
    expect(speaker.locator("main")).to_be_hidden()
    speaker.locator("#card-back").click()
    expect(page.locator("#tour #live-k")).to_be_visible()
    for shown in (page, speaker):
        assert shown.evaluate("window.pwned") is None
        assert shown.locator("img").count() == 0
    context.close()
    assert faults == []
