"""What the page keeps: the list of runs, the form, Back and Forward, and reloads."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from app import presets
from tests.e2e.driving import (
    choose_own_folder,
    finished,
    fold,
    measure_what,
    opened,
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
    settled(page, f"run={rows(page).first.get_attribute('data-key')}")
    expect(page.locator("#prompt textarea")).to_have_value("One day, a cat")
    fold(page)
    return page


def test_listed_run_opens_and_form_follows_and_comes_back(own: Page):
    run = view(own).get_attribute("data-run")
    rows(own).last.locator(".open").click()
    expect(view(own)).to_have_attribute("data-run", presets.opening().header["run"])
    own.locator("#own-settings").click()
    expect(own.locator("#prompt textarea")).to_have_value("One day, a cat")
    expect(own.locator("#max-tokens input[type=number]")).to_have_value("24")
    rows(own).first.locator(".open").click()
    expect(view(own)).to_have_attribute("data-run", run or "")


def test_listed_runs_are_renamed_and_saved(own: Page):
    unfold(own)
    own.get_by_label("Title of the class file").fill("Lecture 3")
    with own.expect_download() as started:
        own.get_by_role("button", name="Class file").click()
    assert "<h1>Lecture 3</h1>" in started.value.path().read_text(encoding="utf-8")
    row, recorded = rows(own).first, rows(own).last
    row.hover()
    row.locator("[data-act=rename]").click()
    own.locator("#runs li input[type=text]").fill("<img src=x>")
    before = recorded.element_handle()
    own.locator("#runs li input[type=text]").press("Enter")
    expect(row.locator("b")).to_contain_text("<img src=x>")
    assert recorded.evaluate("(row, before) => row === before", before)  # a click on it may have begun


def test_class_file_can_be_made_of_a_single_run(empty: Page, address: str):
    opened(empty, address)
    assert rows(empty).count() == 1
    assert not empty.get_by_role("button", name=re.compile("Save all|Side by side")).count()
    with empty.expect_download() as started:
        empty.get_by_role("button", name="Class file").click()
    assert presets.opening().header["run"] in started.value.path().read_text(encoding="utf-8")


def test_runs_of_the_list_replace_the_race_and_open_at_a_step(own: Page):
    count = own.locator("#runs li").count()
    own.get_by_role("tab", name="Race").click()
    own.locator("#race li.track .explore").nth(1).click()  # a second run of the prompt that the page opens with
    expect(own.locator("#runs li")).to_have_count(count + 1)
    own.get_by_role("tab", name="Race").click()
    unfold(own)
    own.get_by_role("button", name="Side by side").click()
    expect(own.locator("#race .title")).to_have_text("Runs of the list.")
    expect(own.locator("#drawer")).to_be_hidden()
    own.get_by_role("button", name="Back to the race").click()
    expect(own.locator("#race .title")).to_have_text("A recorded race.")
    unfold(own)
    own.locator("#runs li .open").first.click()  # the list is in the drawer of every tab
    expect(view(own)).to_be_visible()
    rows(own).first.hover()
    own.locator("#runs li [data-act=remove]").first.click()
    expect(rows(own)).to_have_count(count)


def test_forward_before_the_run_of_back_arrives_keeps_the_history(own: Page):
    first, last = (f"run={row.get_attribute('data-key')}" for row in (rows(own).first, rows(own).last))
    rows(own).last.locator(".open").click()
    settled(own, last)
    entries = own.evaluate("history.length")
    own.go_back()
    settled(own, first)
    own.go_forward()
    settled(own, last)
    expect(rows(own).last).to_have_class("shown")
    own.go_back()
    settled(own, first)
    expect(rows(own).first).to_have_class("shown")
    assert own.evaluate("history.length") == entries


def test_back_forward_and_reload_restore_views_and_input(own: Page):
    run = view(own).get_attribute("data-run") or ""
    open_tab = own.locator("[role=tab][aria-selected=true]")
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
    expect(own.locator("#prompt textarea")).to_have_value("One day, a cat")  # the entry's run is shown in Explore
    expect(open_tab).to_have_attribute("data-tab-id", "race")
    own.go_back()
    settled(own, "tab=explore", "step=")
    expect(view(own)).to_have_attribute("data-run", run)
    expect(view(own)).to_have_attribute("data-pinned", step or "")
    expect(own.locator("#prompt textarea")).to_have_value("One day, a cat")
    own.go_forward()
    expect(open_tab).to_have_attribute("data-tab-id", "race")
    own.go_back()
    settled(own, "tab=explore", "step=")
    own.locator("#prompt textarea").fill("typed, not run")
    choose_own_folder(own)
    own.locator("#folder input").fill("/my/nets")
    fold(own)
    other = own.locator("#text .tok").nth(3)
    last = other.get_attribute("data-step")
    other.click()
    expect(view(own)).to_have_attribute("data-pinned", last or "")
    own.reload()  # immediately, before the address contains the step
    expect(own.locator("#runs li")).to_have_count(3)
    expect(view(own)).to_have_attribute("data-pinned", last or "")
    expect(own.locator("#prompt textarea")).to_have_value("typed, not run")
    expect(own.locator("#folder input")).to_have_value("/my/nets")


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


def test_trace_link_opens_trace_of_own_host(empty: Page, address):
    lines = [json.loads(line) for line in presets.opening().lines()]
    lines[0]["run"] = "e" * 32
    trace = "".join(json.dumps(line) + "\n" for line in lines)
    empty.route(re.compile(r":\d+/runs/mine\.jsonl$"), lambda route: route.fulfill(body=trace))
    empty.goto(f"{address}?trace=/runs/mine.jsonl&step=4")
    expect(view(empty)).to_have_attribute("data-run", "e" * 32)
    expect(view(empty)).to_have_attribute("data-pinned", "3")
    expect(rows(empty).nth(0)).to_contain_text("mine.jsonl")
