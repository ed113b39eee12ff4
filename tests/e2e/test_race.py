"""Race in a real browser."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from app import presets
from app.methods import lane_title, ordered
from app.race.run import recorded_race
from tests.e2e.driving import choose_from, fold, open_tab, set_number, unfold, view, window

pytestmark = pytest.mark.e2e
PROMPT = "One day, a small dog"


def raced(page: Page) -> Page:
    page.get_by_role("tab", name="Race").click()
    expect(page.locator("#race .track").first).to_be_visible()
    return page


@pytest.fixture
def replayed(browser, address: str):
    """The tab Race in a window with motion. Its clock only advances when a test advances it, and is shared by all windows of
    its context."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.clock.install()
    with window(context, address) as page:
        context.clock.pause_at(page.evaluate("Date.now()") + 3_600_000)
        yield raced(page)
    context.close()


def choose(page: Page, *methods: str) -> None:
    names = [title for title, _ in ordered(methods)]
    unfold(page)
    for label in page.locator("#race-methods label:visible").all():
        label.locator("input").set_checked((label.text_content() or "").strip() in names)
    fold(page)


def data(page: Page, name: str) -> str:
    return page.evaluate("name => document.querySelector('#race [data-state]').dataset[name]", name)


def seek(page: Page, share: float) -> None:
    page.locator("#race .time").evaluate(
        "(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", round(1000 * share)
    )


def visible_tokens(page: Page) -> list[int]:
    return page.locator("#race .track[data-tokens]").evaluate_all("tracks => tracks.map(t => Number(t.dataset.tokens))")


def tokens(until: float = 1e9) -> list[int]:
    """Returns for every lane of the recorded race the number of tokens that its steps had written at this time, in seconds."""
    return [sum(len(s.committed) for s in lane.trace.steps if s.elapsed <= until) for lane in recorded_race().lanes]


def test_replay_starts_by_itself_and_follows_slider_and_keys(replayed: Page):
    lanes = recorded_race().lanes
    end = max(lane.trace.totals.seconds for lane in lanes)
    expect(replayed.locator("#race [data-playing=true]")).to_be_attached()
    assert float(data(replayed, "time")) == 0
    replayed.clock.run_for(1000)
    assert 0 < float(data(replayed, "time")) < end
    replayed.clock.run_for(60_000)
    assert (data(replayed, "playing"), visible_tokens(replayed)) == ("false", tokens())
    seek(replayed, 0.5)
    at = float(data(replayed, "time"))
    assert at == pytest.approx(end / 2, rel=0.01)
    assert all(abs(a - b) <= 16 for a, b in zip(visible_tokens(replayed), tokens(at), strict=True))
    later = replayed.locator("#race .a-later, #race .b-later")
    assert later.count() > 0  # the rails of the text grow with the lanes
    seek(replayed, 1)
    assert later.count() == 0
    seek(replayed, 0)
    assert visible_tokens(replayed) == [0] * len(lanes)
    replayed.locator("#race .play").focus()
    replayed.keyboard.press("Enter")
    assert data(replayed, "playing") == "true"
    replayed.keyboard.press("Enter")
    assert data(replayed, "playing") == "false"
    replayed.locator("#race .time").press("End")
    assert visible_tokens(replayed) == tokens()


def test_recorded_race_without_motion_shows_end_and_costs(shown: Page):
    race, page = recorded_race(), raced(shown)
    assert (data(page, "playing"), visible_tokens(page)) == ("false", tokens())
    ends = sorted(zip(race.methods, race.lanes, strict=True), key=lambda end: end[1].trace.totals.seconds)
    order = "; ".join(lane_title(lane) for lane, _ in ends)
    expect(page.locator("#race .spoken[aria-live]")).to_have_text(f"Finish order: {order}.")
    expect(page.locator(f"#race .track[data-method='{ends[0][0]}'] .result")).to_have_text(re.compile("^1st · "))
    words = "".join(page.locator("#race .piece").all_text_contents())
    assert words == race.lanes[race.methods.index("d2sd")].trace.text
    rows = page.locator("#race .costs .bar-row")
    costs = page.locator("#race .figures td[data-name='One-token passes']").all_text_contents()[1:]
    assert rows.locator(".value b").all_text_contents() == costs
    page.locator("#race-pays").click()
    expect(page.locator("#learn .words > h3")).to_have_text("When does it pay?")
    page.get_by_role("tab", name="Race").click()


def test_text_between_two_lanes_is_framed_by_pointer_keys_and_choice(shown: Page):
    page = raced(shown)
    expect(page.locator("#race h2.result")).to_have_text("D²SD needs 14 steps where DFlash needs 24.")
    page.locator("#race .tools button[aria-expanded]").click()
    expect(page.locator("#race .differences .fine")).to_contain_text("What differs: method (DFlash → D²SD)")
    with page.expect_download() as saved:
        page.locator("#race .tools").get_by_role("button", name="JSON").click()
    assert json.loads(saved.value.path().read_text(encoding="utf-8"))["names"] == ["DFlash", "D²SD"]
    told = page.locator("#race .told")
    expect(told).to_contain_text("DFlash needed three steps")
    assert page.locator("#race .track[data-method=dflash] .block.framed").count() == 3
    page.locator("#race .rails").focus()
    page.keyboard.press("ArrowRight")
    expect(told).not_to_contain_text("DFlash needed three steps")
    page.keyboard.press("ArrowLeft")
    page.locator("#race .piece").nth(3).hover()
    expect(told).not_to_contain_text("DFlash needed three steps")
    page.locator("#race .track[data-method=autoregressive] .name").click()  # replaces the lane that was chosen first
    expect(page.locator("#race h2.result")).to_have_text("D²SD needs 14 steps where one by one needs 110.")
    page.locator("#race .about button").last.click()
    expect(view(page)).to_be_visible()
    expect(view(page)).to_have_attribute("data-pinned", re.compile(r"\d"))


def test_own_race_is_drawn_after_mistake(module_page: Page):
    race = raced(module_page)
    choose(race)
    race.locator("#start-race").click()
    expect(race.locator("#race-notice textarea")).to_have_value(re.compile("no method is ticked"))
    race.locator("#prompt textarea").fill(PROMPT)
    choose(race, "autoregressive", "d2sd")
    set_number(race, "max-tokens", 24)
    race.locator("#prompt textarea").press("Enter")  # presses the main button of the tab
    expect(race.locator("#race .title")).to_have_text("Your race.")
    expect(race.locator("#race .figures tr[data-method=d2sd] .same")).to_have_text("✓")


def test_one_bar_serves_explore_race_and_calibrate(module_page: Page):
    page, prompt = module_page, module_page.locator("#prompt textarea")
    buttons = {"Explore": "run", "Race": "start-race", "Calibrate": "measure"}
    open_tab(page, "Explore")
    choose_from(page, "model", presets.DSPARK)
    prompt.fill("written in Explore")
    for tab, button in buttons.items():
        open_tab(page, tab)
        assert [b for b in buttons.values() if page.locator(f"#{b}").is_visible()] == [button]
        expect(page.locator("#model input")).to_have_value(presets.DSPARK)
        expect(prompt).to_have_value("written in Explore")
        expect(prompt).to_be_visible(visible=tab != "Calibrate")
