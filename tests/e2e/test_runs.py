"""What the page keeps: the list of runs, the form, Back and Forward, and reloads."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from app import presets
from tests.e2e.driving import (
    PATIENCE,
    choose_from,
    finished,
    fold,
    measure_what,
    opened,
    problem,
    reopened,
    start,
    unfold,
    view,
)

pytestmark = pytest.mark.e2e


def rows(page: Page) -> Locator:
    if view(page).is_visible():
        unfold(page)
    return page.locator("#runs li")


def settled(page: Page, *fields: str) -> None:
    """Wait until the address has these fields."""
    page.wait_for_url(lambda address: all(field in address for field in fields), timeout=PATIENCE)


@pytest.fixture
def two(module_page: Page, address: str) -> Page:
    """The window with the recorded run and a user's run, which is shown; reopened if a test has left more runs."""
    page = module_page
    page.get_by_role("tab", name="Explore").click()
    if rows(page).count() == 2:
        rows(page).nth(0).locator(".open").click()
        expect(rows(page).nth(0)).to_have_class("shown", timeout=PATIENCE)
        expect(page.locator("#prompt textarea")).to_have_value("One day, a cat")
        return page
    reopened(page, address)  # clears the input of earlier tests
    fold(page)
    start(page, "One day, a cat", 24)
    finished(page)
    expect(rows(page)).to_have_count(2)
    return page


def test_listed_run_opens_and_form_follows_and_comes_back(two: Page):
    own = view(two).get_attribute("data-run")
    rows(two).nth(1).locator(".open").click()
    expect(view(two)).to_have_attribute("data-run", presets.opening().header["run"], timeout=PATIENCE)
    expect(two.locator("#prompt textarea")).to_have_value(presets.opening().header["prompt"])
    two.locator("#own-settings").click()
    expect(two.locator("#prompt textarea")).to_have_value("One day, a cat")
    expect(two.locator("#max-tokens input[type=number]")).to_have_value("24")
    expect(two.locator("#own-settings")).to_be_hidden()
    rows(two).nth(0).locator(".open").click()
    expect(view(two)).to_have_attribute("data-run", own or "", timeout=PATIENCE)
    # as in a class file, runs are numbered from the oldest, which is the one that the page opens with
    two.evaluate("location.hash = 'run=2&step=3&node=1'")
    expect(view(two)).to_have_attribute("data-pinned", "2", timeout=PATIENCE)
    expect(view(two)).to_have_attribute("data-run", own or "")
    expect(view(two)).to_have_attribute("data-node", "1")


def test_runs_of_the_list_replace_the_race_and_open_at_a_step(two: Page):
    fold(two)
    two.get_by_role("tab", name="Race").click()
    expect(two.locator("#race h2.result")).to_have_text("D²SD needs 14 steps where DFlash needs 24.", timeout=PATIENCE)
    two.locator("#race li.track .explore").nth(1).click()  # a second run of the prompt that the page opens with
    expect(two.locator("#runs li")).to_have_count(3, timeout=PATIENCE)
    two.get_by_role("tab", name="Race").click()
    unfold(two)
    two.get_by_role("button", name="Side by side").click()
    expect(two.locator("#race .title")).to_have_text("Runs of the list.", timeout=PATIENCE)
    expect(two.locator("#drawer")).to_be_hidden()
    expect(two.locator("#race li.track")).to_have_count(2)
    two.locator("#race .about button").last.click()
    expect(view(two)).to_be_visible(timeout=PATIENCE)
    two.get_by_role("tab", name="Race").click()
    two.get_by_role("button", name="Back to the race").click()
    expect(two.locator("#race .title")).to_have_text("A recorded race.", timeout=PATIENCE)
    unfold(two)
    two.locator("#runs li .open").first.click()  # the list is in the drawer of every tab
    expect(view(two)).to_be_visible(timeout=PATIENCE)


def test_explain_tells_own_run_and_leads_back_to_it(two: Page):
    fold(two)
    run = view(two).get_attribute("data-run")
    two.locator("#text .tok[data-step='1']").first.click()
    expect(view(two)).to_have_attribute("data-pinned", "1")
    two.locator("#explain").first.click()
    expect(two.locator("#learn .whose")).to_contain_text("Your run, step 2", timeout=PATIENCE)
    two.locator("#learn .rail [title='When it pays']").click()
    expect(two.locator("#learn .by-hand .none").first).to_contain_text("open “why?” in Explore")  # not replayed yet
    two.locator("#learn-open").click()
    expect(view(two)).to_be_visible(timeout=PATIENCE)
    assert view(two).get_attribute("data-run") == run
    expect(view(two)).to_have_attribute("data-pinned", "1")


def test_listed_runs_are_renamed_saved_and_removed(two: Page):
    two.get_by_label("Title of the class file").fill("Lecture 3")
    with two.expect_download(timeout=PATIENCE) as started:
        two.get_by_role("button", name="Class file").click()
    page = started.value.path().read_text(encoding="utf-8")
    assert (started.value.suggested_filename, "<h1>Lecture 3</h1>" in page) == ("d2sd-class.html", True)
    row = rows(two).nth(0)
    row.hover()
    row.locator("[data-act=rename]").click()
    two.locator("#runs li input[type=text]").fill("<img src=x>")
    other = rows(two).nth(1).element_handle()
    two.locator("#runs li input[type=text]").press("Enter")
    expect(rows(two).nth(0).locator("b")).to_contain_text("<img src=x>")
    assert rows(two).nth(1).evaluate("(row, before) => row === before", other)  # a click on it may have begun
    rows(two).nth(1).hover()
    with two.expect_download(timeout=PATIENCE) as started:
        rows(two).nth(1).locator("[data-act=file]").click()
    saved = started.value.path().read_text(encoding="utf-8").splitlines()
    assert saved == presets.opening().lines()
    rows(two).nth(0).hover()
    rows(two).nth(0).locator("[data-act=remove]").click()
    expect(rows(two)).to_have_count(1)


def test_back_forward_and_reload_restore_views_and_input(two: Page):
    fold(two)
    token = two.locator("#text .tok").nth(8)
    step = token.get_attribute("data-step")
    assert view(two).get_attribute("data-pinned") != step  # an earlier test has not selected it
    token.click()
    expect(view(two)).to_have_attribute("data-pinned", step or "")
    two.get_by_role("tab", name="Race").click()  # before the address contains the step
    settled(two, "tab=race")
    two.locator("#race li.track .explore").nth(1).click()
    settled(two, "tab=explore")
    expect(two.locator("#runs li")).to_have_count(3, timeout=PATIENCE)
    expect(two.locator("#prompt textarea")).not_to_have_value("One day, a cat")  # the form follows the opened run
    two.go_back()
    settled(two, "tab=race")
    two.go_back()
    settled(two, "tab=explore", "step=")
    expect(view(two)).to_have_attribute("data-pinned", step or "", timeout=PATIENCE)
    two.go_forward()
    settled(two, "tab=race")
    expect(two.locator("[role=tab][aria-selected=true]")).to_have_attribute("data-tab-id", "race")
    two.go_back()
    settled(two, "tab=explore", "step=")
    expect(two.locator("#prompt textarea")).to_have_value("One day, a cat")
    two.locator("#prompt textarea").fill("typed, not run")
    choose_from(two, "model", "a folder of your own")
    unfold(two)
    two.locator("#folder input").fill("/my/nets")
    two.locator("#vp input").fill("/my/vp")
    fold(two)
    other = two.locator("#text .tok").nth(3)
    last = other.get_attribute("data-step")
    assert last != step
    other.click()
    expect(view(two)).to_have_attribute("data-pinned", last or "")
    two.reload()  # immediately, before the address contains the step
    expect(two.locator("#runs li")).to_have_count(3, timeout=PATIENCE)
    expect(view(two)).to_have_attribute("data-pinned", last or "", timeout=PATIENCE)
    expect(two.locator("#prompt textarea")).to_have_value("typed, not run")
    expect(two.locator("#model input")).to_have_value("a folder of your own")
    expect(two.locator("#folder input")).to_have_value("/my/nets")
    expect(two.locator("#vp input")).to_have_value("/my/vp")


def expect_typed(page: Page, raced: str, measured: str) -> None:
    """Expect these prompts in the fields of Race and Calibrate."""
    page.get_by_role("tab", name="Race").click()
    expect(page.locator("#prompt textarea")).to_have_value(raced)
    page.get_by_role("tab", name="Calibrate").click()
    measure_what(page, "Prompts of my own")
    expect(page.locator("#own-prompts textarea")).to_have_value(measured)
    fold(page)


def test_reload_keeps_race_and_calibrate_prompts_without_sending_them(page: Page, address: str):
    expect_typed(page, str(presets.opening().header["prompt"]), "")
    page.get_by_role("tab", name="Race").click()
    page.locator("#prompt textarea").fill("raced of my own")
    page.get_by_role("tab", name="Calibrate").click()
    unfold(page)
    page.locator("#own-prompts textarea").press_sequentially("first\nof my own")
    measure_what(page, "Prompts: heldout")  # the field is hidden and keeps its text
    page.get_by_role("tab", name="Explore").click()
    told: list[str] = []
    page.on("request", lambda request: told.append(f"{request.url} {request.post_data or ''}"))
    for _ in range(2):  # the tabs are not opened in between
        opened(page, address)
    expect_typed(page, "raced of my own", "first\nof my own")
    assert told
    assert not any("my own" in words for words in told)

    # a link takes precedence over typed text
    page.goto(f"{address}?methods=d2sd&prompt=linked")
    expect(page.locator("#prompt textarea")).to_have_value("linked", timeout=PATIENCE)
    expect_typed(page, "linked", "first\nof my own")


def test_trace_link_opens_only_traces_of_own_host(empty: Page, address):
    lines = [json.loads(line) for line in presets.opening().lines()]
    lines[0]["run"] = "e" * 32
    trace = "".join(json.dumps(line) + "\n" for line in lines)
    empty.route(re.compile(r":\d+/runs/mine\.jsonl$"), lambda route: route.fulfill(body=trace))
    asked: list[str] = []
    empty.on("request", lambda request: asked.append(request.url))
    empty.goto(f"{address}?trace=/runs/mine.jsonl&step=4")
    expect(view(empty)).to_have_attribute("data-run", "e" * 32, timeout=PATIENCE)
    expect(view(empty)).to_have_attribute("data-pinned", "3", timeout=PATIENCE)
    expect(rows(empty).nth(0)).to_contain_text("mine.jsonl")
    empty.goto(f"{address}?trace=https://example.org/runs/mine.jsonl")
    expect(empty.locator("#runs .said")).to_contain_text("example.org is not on this page’s list", timeout=PATIENCE)
    assert not [url for url in asked if "example.org" in url and not url.startswith(address)]
    empty.goto(f"{address}?run={'f' * 32}")
    expect(problem(empty)).to_have_value(re.compile("stored here"), timeout=PATIENCE)
