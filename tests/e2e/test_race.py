"""Race in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from app import models, presets
from app.methods import lane_title
from app.models import Chosen
from app.race.run import recorded_race
from d2sd import DecodeConfig
from tests.e2e.driving import PATIENCE, choose_from, window

pytestmark = pytest.mark.e2e
PROMPT = "One day, a small dog"


def raced(page: Page) -> Page:
    page.get_by_role("tab", name="Race").click()
    expect(page.locator("#race .track").first).to_be_visible(timeout=PATIENCE)
    return page


@pytest.fixture
def race(module_page: Page) -> Page:
    """The tab Race as earlier tests have left it."""
    return raced(module_page)


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


def number(page: Page, elem_id: str, value: int) -> None:
    field = page.locator(f"#{elem_id} input[type=number]")
    field.fill(str(value))
    field.blur()


def choose(page: Page, *methods: str) -> None:
    names = [lane_title(method) for method in methods]
    for label in page.locator(".race-methods label:visible").all():
        label.locator("input").set_checked((label.text_content() or "").strip() in names)


def data(page: Page, name: str) -> str:
    return page.evaluate("name => document.querySelector('#race [data-state]').dataset[name]", name)


def seek(page: Page, share: float) -> None:
    page.locator("#race .time").evaluate(
        "(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", round(1000 * share)
    )


def visible_tokens(page: Page) -> list[int]:
    return page.locator("#race .lane").evaluate_all(
        "lanes => lanes.map(l => l.querySelectorAll('.words .tok:not([hidden])').length)"
    )


def tokens() -> list[int]:
    """Returns the number of tokens of every lane of the recorded race."""
    return [lane.trace.totals.tokens for lane in recorded_race().lanes]


def test_replay_starts_by_itself_and_follows_slider_and_keys(replayed: Page):
    lanes = recorded_race().lanes
    end = max(lane.trace.totals.seconds for lane in lanes)
    expect(replayed.locator("#race [data-playing=true]")).to_be_attached()
    assert float(data(replayed, "time")) == 0
    replayed.clock.run_for(1000)
    assert data(replayed, "playing") == "true"
    assert 0 < float(data(replayed, "time")) < end
    replayed.clock.run_for(60_000)
    assert (data(replayed, "playing"), visible_tokens(replayed)) == ("false", tokens())
    seek(replayed, 0.5)
    at = float(data(replayed, "time"))
    assert at == pytest.approx(end / 2, rel=0.01)
    expected = [1 + sum(len(s.committed) for s in lane.trace.steps if s.elapsed <= at) for lane in lanes]
    assert all(abs(a - b) <= 16 for a, b in zip(visible_tokens(replayed), expected, strict=True))
    seek(replayed, 0)
    assert visible_tokens(replayed) == [len(lane.trace.prefill.committed) for lane in lanes]
    words = replayed.locator("#race .lane .words").first
    words.evaluate("e => { e.style.height = '2.5em'; }")  # too low for its text
    seek(replayed, 1)
    assert words.evaluate("e => e.scrollTop > e.scrollHeight - e.clientHeight - 12")  # it scrolls with its text
    seek(replayed, 0)
    replayed.locator("#race .play").focus()
    replayed.keyboard.press("Enter")
    assert data(replayed, "playing") == "true"
    replayed.keyboard.press("Enter")
    assert data(replayed, "playing") == "false"
    replayed.keyboard.press("Tab")
    replayed.keyboard.press("Tab")
    replayed.keyboard.press("End")
    assert visible_tokens(replayed) == tokens()
    replayed.keyboard.press("Tab")
    replayed.keyboard.press("ArrowLeft")
    assert replayed.locator("#race .speeds input:checked").evaluate("e => e === document.activeElement")


def test_recorded_race_without_motion_shows_end_and_costs(shown: Page):
    race, page = recorded_race(), raced(shown)
    assert (data(page, "playing"), visible_tokens(page)) == ("false", tokens())
    expect(page.locator("#race .stage")).to_contain_text("A recorded race")
    expect(page.locator("#race .stage")).to_contain_text("measured on")
    expect(page.locator("#race tbody tr")).to_have_count(len(race.lanes))
    texts = page.locator("#race .lane .words").all_text_contents()
    assert texts == [
        "".join(c.text for s in (lane.trace.prefill, *lane.trace.steps) for c in s.committed) for lane in race.lanes
    ]
    ends = sorted(zip(race.methods, race.lanes, strict=True), key=lambda end: end[1].trace.totals.seconds)
    order = "; ".join(lane_title(lane) for lane, _ in ends)
    expect(page.locator("#race [aria-live=polite]")).to_have_text(f"Finish order: {order}.")
    expect(page.locator(f"#race .track[data-method='{ends[0][0]}'] .result")).to_have_text(re.compile("^1st · "))
    rows = page.locator("#race .costs .bar-row")
    assert rows.locator(".name b").all_text_contents() == [lane_title(method) for method in race.methods[1:]]
    costs = page.locator("#race tbody tr td[data-name='A step costs']").all_text_contents()[1:]
    assert rows.locator(".value b").all_text_contents() == [cost.replace(" plain", " passes") for cost in costs]
    page.locator("#race-pays").click()
    expect(page.locator("#learn .words > h3")).to_have_text("When does it pay?", timeout=PATIENCE)
    page.get_by_role("tab", name="Race").click()


def test_own_race_is_drawn_after_mistake(race: Page):
    title = race.locator("#race .title").text_content() or ""
    choose(race)
    race.locator("#start-race").click()
    expect(race.locator("#race-notice textarea")).to_have_value(re.compile("no method is ticked"), timeout=PATIENCE)
    expect(race.locator("#race .title")).to_have_text(title)
    race.locator("#race-prompt textarea").fill(PROMPT)
    choose(race, "autoregressive", "d2sd")
    number(race, "race-max-tokens", 24)
    race.locator("#start-race").click()
    expect(race.locator("#race .title")).to_have_text("Your race", timeout=PATIENCE)
    expect(race.locator("#race tbody tr")).to_have_count(2)
    expect(race.locator("#race tbody tr[data-method=d2sd] .same")).to_have_text("✓ yes")
    expect(race.locator("#race tbody tr[data-method=autoregressive]")).to_contain_text(
        re.compile(r"1\.00×|not measured cleanly")
    )
    expected = models.engine(Chosen("tiny")).generate(PROMPT, DecodeConfig("d2sd", 24))
    words = race.locator("#race .lane[data-method=d2sd] .words").text_content()
    assert words == "".join(c.text for s in (expected.prefill, *expected.steps) for c in s.committed)


def test_race_form_follows_explore_unless_chosen_in_race(page: Page):
    def explored(prompt: str, model: str) -> None:
        page.get_by_role("tab", name="Explore").click()
        choose_from(page, "model", model)
        page.locator("#prompt textarea").fill(prompt)
        page.get_by_role("tab", name="Race").click()

    prompt, model = page.locator("#race-prompt textarea"), page.locator("#race-model input")
    explored("First", presets.DSPARK)
    expect(prompt).to_have_value("First")
    expect(model).to_have_value(presets.DSPARK)
    choose_from(page, "race-model", "tiny (bundled)")
    explored("Second", presets.DSPARK)
    expect(prompt).to_have_value("Second")
    expect(model).to_have_value("tiny (bundled)")
