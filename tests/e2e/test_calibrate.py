"""Calibrate in a real browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from msgspec import structs
from playwright.sync_api import Locator, Page, expect

from app import presets
from app.calibrate.measure import measure_shown as measured_run
from app.runs.recordings import Recordings
from tests.e2e.driving import (
    choose_from,
    click_mark,
    drawn_figure,
    fold,
    list_steps,
    measure_own,
    measure_what,
    set_number,
    unfold,
    view,
)

pytestmark = pytest.mark.e2e
AT_ONCE = 60  # steps that are listed before “Show more”
FILES = "Trace files and logs"


@pytest.fixture(scope="module")
def report():
    """The report of the run that Explore opens with."""
    return json.loads(measured_run(Recordings(), presets.opening()))["report"]


@pytest.fixture
def calibrate(module_page: Page) -> Page:
    """The tab Calibrate with the recorded run measured, no selection and no files, whatever earlier tests have done."""
    page = module_page
    page.get_by_role("tab", name="Calibrate").click()
    fold(page)
    if not re.search("The run in Explore", title(page).text_content() or ""):
        measure_what(page, "The run in Explore")
        expect(title(page)).to_contain_text("The run in Explore")
    if page.locator("#calibration .members .icon").is_visible():
        page.locator("#calibration .members .icon").click()
    for table in page.locator("#calibration .figure .tools button[aria-pressed=true]:visible").all():
        table.click()
    return page


def title(page: Page) -> Locator:
    return page.locator("#calibration .what").first


def rows(page: Page) -> Locator:
    return page.locator("#calibration .rows button")


def listed(page: Page, heading: str, count: int) -> None:
    """Wait until the list has this heading and this number of steps."""
    expect(page.locator("#calibration .members h3")).to_have_text(heading)
    expect(rows(page)).to_have_count(count)


def send(page: Page, *files: tuple[str, bytes]) -> None:
    measure_what(page, FILES)
    page.locator("#traces input[type=file]").set_input_files(
        [{"name": name, "mimeType": "application/octet-stream", "buffer": content} for name, content in files]
    )


def test_figure_mark_lists_steps_and_theme_change_redraws_in_place(calibrate: Page, report):
    with calibrate.expect_download() as saved:
        calibrate.locator("#calibration [data-save=json]").click()
    assert json.loads(saved.value.path().read_text(encoding="utf-8"))["report"] == report
    last = len(report["uniform"]) - 1
    click_mark(calibrate, "uniform", last)
    listed(calibrate, "Confidence 0.9–1", report["uniform"][-1]["count"])
    click_mark(calibrate, "uniform", last)
    expect(calibrate.locator("#calibration .members h3")).to_have_text("Steps worth seeing")
    click_mark(calibrate, "matrix", len(report["matrix"]["counts"]) + 1)
    listed(calibrate, "Predicted 1, actual 1", report["matrix"]["counts"][1][1])
    drawing = drawn_figure(calibrate, "uniform").locator(".main-svg").first.element_handle()
    light = drawing.evaluate("drawing => drawing.style.background")
    other = "([drawing, light]) => drawing.isConnected && drawing.style.background !== light"
    calibrate.evaluate("document.body.classList.add('dark')")
    calibrate.wait_for_function(other, arg=[drawing, light])
    calibrate.evaluate("document.body.classList.remove('dark')")


def test_figure_table_lists_steps_by_keyboard_and_step_opens_in_explore(calibrate: Page, report):
    last = report["uniform"][-1]
    figure = calibrate.locator("#calibration [data-figure=uniform]")
    figure.get_by_role("button", name="Table").focus()
    calibrate.keyboard.press("Enter")
    number = figure.locator("tbody tr").last.locator("button")
    number.focus()
    calibrate.keyboard.press("Enter")
    listed(calibrate, "Confidence 0.9–1", last["count"])
    expect(number).to_have_attribute("aria-pressed", "true")
    row = rows(calibrate).nth(3)
    step = int((row.locator("b").first.text_content() or "").removeprefix("Step ")) - 1
    row.click()
    expect(calibrate.locator("#tree")).to_be_visible()
    expect(view(calibrate)).to_have_attribute("data-pinned", str(step))
    expect(view(calibrate)).to_have_attribute("data-node", re.compile(r"^\d+$"))
    calibrate.get_by_role("tab", name="Calibrate").click()
    expect(drawn_figure(calibrate, "positions").locator(".shapelayer path").first).to_be_attached()


def test_trace_files_are_measured_and_bad_file_keeps_figures(calibrate: Page, report):
    figures, notice = calibrate.locator("#calibration .figures"), calibrate.locator("#calibrate-notice textarea")
    trace = "".join(f"{line}\n" for line in presets.opening().lines()).encode()
    send(calibrate, ("one.jsonl", trace), ("two.jsonl", trace))
    expect(title(calibrate)).to_have_text("2 trace files")
    list_steps(calibrate, "uniform", 9)
    listed(calibrate, "Confidence 0.9–1", AT_ONCE)
    calibrate.locator("#calibration .members .more").click()
    expect(rows(calibrate)).to_have_count(2 * report["uniform"][-1]["count"])
    before = figures.text_content()
    unfold(calibrate)
    calibrate.locator("#traces button[aria-label=Clear]").first.click()
    send(calibrate, ("bad <b>.jsonl", b'{"a": 1}\n'))
    expect(notice).to_have_value(re.compile("was not read: .*line 1"))
    assert figures.text_content() == before


def test_marks_of_confidence_head_list_steps_with_its_confidence(calibrate: Page, report):
    trace = presets.opening().trace()
    steps = tuple(
        structs.replace(s, trained=tuple((0.25,) * len(d.ids) for d in (s.first_draft, *s.branches)))
        for s in trace.steps
    )
    send(calibrate, ("head.jsonl", "".join(f"{line}\n" for line in replace(trace, steps=steps).lines()).encode()))
    expect(title(calibrate)).not_to_contain_text("Explore")
    fold(calibrate)
    drawn_figure(calibrate, "head-uniform")
    list_steps(calibrate, "head-uniform", 2)
    listed(calibrate, "Confidence head: Confidence 0.2–0.3", min(AT_ONCE, report["positions"]))
    expect(rows(calibrate).first).to_contain_text("confidence .25: accepted")


def test_pasted_log_report_hides_when_source_changes(calibrate: Page):
    measure_what(calibrate, FILES)
    log, report = calibrate.locator("#pasted-log textarea"), calibrate.locator("#doctor-report")
    log.fill("draft acceptance = 0.25000 (100 accepted / 400 generated)")
    fold(calibrate)
    calibrate.locator("#measure").click()
    expect(report).to_contain_text("llama.cpp")
    calibrate.locator("#doctor-close").click()
    expect(report).to_be_hidden()
    calibrate.locator("#measure").click()
    expect(report).to_be_visible()
    measure_what(calibrate, "Prompts: heldout")
    expect(report).to_be_hidden()


def test_own_prompts_show_progress_and_stop_keeps_finished_prompts(calibrate: Page):
    measure_own(calibrate, "They were happy. The end.\n" + "🙂\n" * 99, done=1)  # the first text ends soon
    expect(calibrate.locator("#calibration progress")).to_be_visible()
    calibrate.locator("#stop-measuring").click()
    expect(title(calibrate)).to_contain_text("stopped: ")
    expect(rows(calibrate).first).to_be_visible()


def test_measured_set_is_compared_with_an_earlier_one_and_its_step_opens_in_explore(calibrate: Page):
    measure_what(calibrate, "Prompts: heldout")
    set_number(calibrate, "how-many", 3)
    set_number(calibrate, "max-tokens", 16)
    for method in ("D²SD", "DFlash"):
        choose_from(calibrate, "calibrate-method", method)
        calibrate.locator("#measure").click()
        expect(title(calibrate)).to_have_text(f"3 prompts of heldout with {method}")
    expect(calibrate.locator("#calibration [data-done='3'], #calibration[data-done='3']")).to_be_attached()
    calibrate.locator("#against input").click()
    calibrate.get_by_role("option", name=re.compile("^against 3 prompts of heldout with D²SD")).click()
    compared = calibrate.locator("#compared")
    expect(compared.locator("h2.result")).to_contain_text("DFlash")
    expect(compared.locator("select option")).to_have_count(3)
    compared.locator("select").select_option("1")
    expect(compared.locator(".texts .status")).to_contain_text("Both wrote the same text.")
    compared.locator(".about button").first.click()
    expect(view(calibrate)).to_be_visible()
    expect(view(calibrate)).to_have_attribute("data-pinned", re.compile(r"\d"))
    calibrate.get_by_role("tab", name="Calibrate").click()
    choose_from(calibrate, "against", "against …")
    expect(compared).to_be_hidden()
