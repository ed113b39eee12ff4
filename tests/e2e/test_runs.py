"""What the page keeps: the list of runs, the form, Back and Forward, and reloads."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from app import presets
from tests.e2e.driving import (
    choose_from,
    finished,
    fold,
    measure_what,
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
    page.wait_for_url(lambda address: all(field in address for field in fields))


@pytest.fixture
def own(module_page: Page, address: str) -> Page:
    """The window of this module with a user's run shown, first in the list of runs; the recorded run is the last one."""
    page = module_page
    page.get_by_role("tab", name="Explore").click()
    if rows(page).count() < 2:
        reopened(page, address)  # clears the input of earlier tests
        fold(page)
        start(page, "One day, a cat", 24)
        finished(page)
    rows(page).first.locator(".open").click()
    expect(rows(page).first).to_have_class("shown")
    expect(page.locator("#prompt textarea")).to_have_value("One day, a cat")
    fold(page)
    return page


def test_listed_run_opens_and_form_follows_and_comes_back(own: Page):
    run = view(own).get_attribute("data-run")
    rows(own).last.locator(".open").click()
    expect(view(own)).to_have_attribute("data-run", presets.opening().header["run"])
    expect(own.locator("#prompt textarea")).to_have_value(presets.opening().header["prompt"])
    own.locator("#own-settings").click()
    expect(own.locator("#prompt textarea")).to_have_value("One day, a cat")
    expect(own.locator("#max-tokens input[type=number]")).to_have_value("24")
    expect(own.locator("#own-settings")).to_be_hidden()
    rows(own).first.locator(".open").click()
    expect(view(own)).to_have_attribute("data-run", run or "")
    # as in a class file, runs are numbered from the oldest, which is the one that the page opens with
    own.evaluate("location.hash = 'run=2&step=3&node=1'")
    expect(view(own)).to_have_attribute("data-pinned", "2")
    expect(view(own)).to_have_attribute("data-run", run or "")
    expect(view(own)).to_have_attribute("data-node", "1")


def test_explain_tells_own_run_and_leads_back_to_it(own: Page):
    run = view(own).get_attribute("data-run")
    own.locator("#text .tok[data-step='1']").first.click()
    expect(view(own)).to_have_attribute("data-pinned", "1")
    own.locator("#explain").first.click()
    expect(own.locator("#learn .whose")).to_contain_text("Your run, step 2")
    own.locator("#learn .rail [title='When it pays']").click()
    expect(own.locator("#learn .by-hand .none").first).to_contain_text("open “why?” in Explore")  # not replayed yet
    own.locator("#learn-open").click()
    expect(view(own)).to_be_visible()
    assert view(own).get_attribute("data-run") == run
    expect(view(own)).to_have_attribute("data-pinned", "1")


def test_listed_runs_are_renamed_and_saved(own: Page):
    unfold(own)
    own.get_by_label("Title of the class file").fill("Lecture 3")
    with own.expect_download() as started:
        own.get_by_role("button", name="Class file").click()
    page = started.value.path().read_text(encoding="utf-8")
    assert (started.value.suggested_filename, "<h1>Lecture 3</h1>" in page) == ("d2sd-class.html", True)
    row, recorded = rows(own).first, rows(own).last
    row.hover()
    row.locator("[data-act=rename]").click()
    own.locator("#runs li input[type=text]").fill("<img src=x>")
    before = recorded.element_handle()
    own.locator("#runs li input[type=text]").press("Enter")
    expect(row.locator("b")).to_contain_text("<img src=x>")
    assert recorded.evaluate("(row, before) => row === before", before)  # a click on it may have begun
    recorded.hover()
    with own.expect_download() as started:
        recorded.locator("[data-act=file]").click()
    assert started.value.path().read_text(encoding="utf-8").splitlines() == presets.opening().lines()


def test_runs_of_the_list_replace_the_race_and_open_at_a_step(own: Page):
    count = own.locator("#runs li").count()
    own.get_by_role("tab", name="Race").click()
    expect(own.locator("#race h2.result")).to_have_text("D²SD needs 14 steps where DFlash needs 24.")
    own.locator("#race li.track .explore").nth(1).click()  # a second run of the prompt that the page opens with
    expect(own.locator("#runs li")).to_have_count(count + 1)
    own.get_by_role("tab", name="Race").click()
    unfold(own)
    own.get_by_role("button", name="Side by side").click()
    expect(own.locator("#race .title")).to_have_text("Runs of the list.")
    expect(own.locator("#drawer")).to_be_hidden()
    expect(own.locator("#race li.track")).to_have_count(2)
    own.locator("#race .about button").last.click()
    expect(view(own)).to_be_visible()
    own.get_by_role("tab", name="Race").click()
    own.get_by_role("button", name="Back to the race").click()
    expect(own.locator("#race .title")).to_have_text("A recorded race.")
    unfold(own)
    own.locator("#runs li .open").first.click()  # the list is in the drawer of every tab
    expect(view(own)).to_be_visible()
    rows(own).first.hover()
    own.locator("#runs li [data-act=remove]").first.click()
    expect(rows(own)).to_have_count(count)


def test_back_forward_and_reload_restore_views_and_input(own: Page):
    run = view(own).get_attribute("data-run") or ""
    token = own.locator("#text .tok").nth(8)
    step = token.get_attribute("data-step")
    assert view(own).get_attribute("data-pinned") != step  # an earlier test has not selected it
    token.click()
    expect(view(own)).to_have_attribute("data-pinned", step or "")
    own.get_by_role("tab", name="Race").click()  # before the address contains the step
    settled(own, "tab=race")
    own.locator("#race li.track .explore").nth(1).click()
    settled(own, "tab=explore")
    expect(own.locator("#runs li")).to_have_count(3)
    expect(own.locator("#prompt textarea")).not_to_have_value("One day, a cat")  # the form follows the opened run
    own.go_back()
    settled(own, "tab=race")
    own.go_back()
    settled(own, "tab=explore", "step=")
    expect(view(own)).to_have_attribute("data-run", run)
    expect(view(own)).to_have_attribute("data-pinned", step or "")
    expect(own.locator("#prompt textarea")).to_have_value("One day, a cat")
    own.go_forward()
    settled(own, "tab=race")
    expect(own.locator("[role=tab][aria-selected=true]")).to_have_attribute("data-tab-id", "race")
    own.go_back()
    settled(own, "tab=explore", "step=")
    expect(own.locator("#prompt textarea")).to_have_value("One day, a cat")
    own.locator("#prompt textarea").fill("typed, not run")
    choose_from(own, "model", "a folder of your own")
    unfold(own)
    own.locator("#folder input").fill("/my/nets")
    own.locator("#vp input").fill("/my/vp")
    fold(own)
    other = own.locator("#text .tok").nth(3)
    last = other.get_attribute("data-step")
    assert last != step
    other.click()
    expect(view(own)).to_have_attribute("data-pinned", last or "")
    own.reload()  # immediately, before the address contains the step
    expect(own.locator("#runs li")).to_have_count(3)
    expect(view(own)).to_have_attribute("data-pinned", last or "")
    expect(own.locator("#prompt textarea")).to_have_value("typed, not run")
    expect(own.locator("#model input")).to_have_value("a folder of your own")
    expect(own.locator("#folder input")).to_have_value("/my/nets")
    expect(own.locator("#vp input")).to_have_value("/my/vp")


def test_reload_keeps_prompts_of_race_and_calibrate_without_sending_them(module_page: Page, address: str):
    page, prompt = module_page, module_page.locator("#prompt textarea")
    page.get_by_role("tab", name="Race").click()
    prompt.fill("raced of my own")
    page.get_by_role("tab", name="Calibrate").click()
    measure_what(page, "Prompts of my own")
    page.locator("#own-prompts textarea").fill("first\nof my own")
    measure_what(page, "Prompts: heldout")  # the field is hidden and keeps its text
    page.get_by_role("tab", name="Explore").click()
    told: list[str] = []
    page.on("request", lambda request: told.append(f"{request.url} {request.post_data or ''}"))
    for _ in range(2):  # the tabs are not opened in between
        page.goto(address)
        expect(prompt).to_have_value("raced of my own")
    page.get_by_role("tab", name="Calibrate").click()
    measure_what(page, "Prompts of my own")
    expect(page.locator("#own-prompts textarea")).to_have_value("first\nof my own")
    assert told
    assert not any("my own" in words for words in told)

    # a link takes precedence over typed text
    page.goto(f"{address}?methods=d2sd&prompt=linked")
    expect(prompt).to_have_value("linked")


def test_trace_link_opens_only_traces_of_own_host(empty: Page, address):
    lines = [json.loads(line) for line in presets.opening().lines()]
    lines[0]["run"] = "e" * 32
    trace = "".join(json.dumps(line) + "\n" for line in lines)
    empty.route(re.compile(r":\d+/runs/mine\.jsonl$"), lambda route: route.fulfill(body=trace))
    asked: list[str] = []
    empty.on("request", lambda request: asked.append(request.url))
    empty.goto(f"{address}?trace=/runs/mine.jsonl&step=4")
    expect(view(empty)).to_have_attribute("data-run", "e" * 32)
    expect(view(empty)).to_have_attribute("data-pinned", "3")
    expect(rows(empty).nth(0)).to_contain_text("mine.jsonl")
    empty.goto(f"{address}?trace=https://example.org/runs/mine.jsonl")
    expect(empty.locator("#runs .said")).to_contain_text("example.org is not on this page’s list")
    assert not [url for url in asked if "example.org" in url and not url.startswith(address)]
