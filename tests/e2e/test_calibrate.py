"""Calibrate in a real browser."""

from __future__ import annotations

import json
import re

import pytest
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
    for table in page.locator("#calibration .figure .tools button[aria-pressed=true]").all():
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


def shown_step(row: Locator) -> int:
    """Returns the number, from 0, of the step in this row."""
    return int((row.locator("b").first.text_content() or "").removeprefix("Step ")) - 1


def choose_files(page: Page) -> None:
    measure_what(page, "Trace files and logs")


def send(page: Page, *files: tuple[str, bytes]) -> None:
    choose_files(page)
    page.locator("#traces input[type=file]").set_input_files(
        [{"name": name, "mimeType": "application/octet-stream", "buffer": content} for name, content in files]
    )


def test_figure_mark_lists_steps_and_theme_change_redraws_in_place(calibrate: Page, report):
    with calibrate.expect_download() as saved:
        calibrate.locator("#calibration [data-save=json]").click()
    assert json.loads(saved.value.path().read_text(encoding="utf-8"))["report"] == report
    surest = "Steps worth seeing"
    rejected = sum(s.actual_boundary is not None and s.actual_boundary < 15 for s in presets.opening().trace().steps)
    listed(calibrate, surest, rejected)
    last = len(report["uniform"]) - 1
    click_mark(calibrate, "uniform", last)
    listed(calibrate, "Confidence 0.9–1", report["uniform"][-1]["count"])
    click_mark(calibrate, "uniform", last)
    listed(calibrate, surest, rejected)
    click_mark(calibrate, "matrix", len(report["matrix"]["counts"]) + 1)
    listed(calibrate, "Predicted 1, actual 1", report["matrix"]["counts"][1][1])
    click_mark(calibrate, "gains", 0)
    expect(rows(calibrate)).to_have_count(report["gains"]["sources"][0]["won"])
    calibrate.locator("#calibration .members .icon").click()
    listed(calibrate, surest, rejected)
    expect(
        drawn_figure(calibrate, "uniform").get_by_role("button", name=re.compile("share|cloud", re.I))
    ).to_have_count(0)
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
    row = figure.locator("tbody tr").last
    cells = row.locator("td").all_text_contents()
    assert cells[:3] == [str(last["count"]), f"{last['confidence']:.3f}", f"{last['accepted']:.3f}"]
    number = row.locator("button")
    number.focus()
    calibrate.keyboard.press("Enter")
    listed(calibrate, "Confidence 0.9–1", last["count"])
    expect(number).to_have_attribute("aria-pressed", "true")
    calibrate.keyboard.press("Enter")
    expect(number).to_have_attribute("aria-pressed", "false")
    calibrate.keyboard.press("Enter")
    step = shown_step(rows(calibrate).nth(3))
    assert max(presets.opening().trace().steps[step].first_draft.confidence) >= 0.9
    rows(calibrate).nth(3).click()
    expect(calibrate.locator("#tree")).to_be_visible()
    expect(view(calibrate)).to_have_attribute("data-pinned", str(step))
    expect(view(calibrate)).to_have_attribute("data-node", re.compile(r"^\d+$"))
    calibrate.get_by_role("tab", name="Calibrate").click()
    expect(drawn_figure(calibrate, "positions").locator(".shapelayer path").first).to_be_attached()


def test_trace_files_are_measured_again_and_bad_file_keeps_figures(calibrate: Page, report):
    figures, notice = calibrate.locator("#calibration .figures"), calibrate.locator("#calibrate-notice textarea")
    before = figures.text_content()
    choose_files(calibrate)
    fold(calibrate)
    calibrate.locator("#measure").click()
    expect(notice).to_have_value(re.compile("choose one or more trace files first"))
    assert figures.text_content() == before
    trace = "".join(f"{line}\n" for line in presets.opening().lines()).encode()
    send(calibrate, ("one.jsonl", trace), ("two.jsonl", trace))
    expect(title(calibrate)).to_have_text("2 trace files")
    measure_what(calibrate, "The run in Explore")
    expect(title(calibrate)).to_contain_text("The run in Explore")
    choose_files(calibrate)
    fold(calibrate)
    calibrate.locator("#measure").click()
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


def test_pasted_log_report_hides_when_source_changes(calibrate: Page):
    choose_files(calibrate)
    log, report = calibrate.locator("#pasted-log textarea"), calibrate.locator("#doctor-report")
    log.fill("draft acceptance = 0.25000 (100 accepted / 400 generated)")
    fold(calibrate)
    calibrate.locator("#measure").click()
    expect(report).to_contain_text("llama.cpp")
    expect(report).to_be_visible()
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
    expect(calibrate.locator("#calibration progress")).to_be_hidden()
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
    expect(calibrate.locator("#calibration .more").first).to_contain_text("3 runs")
    calibrate.locator("#against input").click()
    calibrate.get_by_role("option", name=re.compile("^against 3 prompts of heldout with D²SD")).click()
    compared = calibrate.locator("#compared")
    expect(compared.locator("h2.result")).to_contain_text("DFlash")
    options = compared.locator("select option").all_text_contents()
    assert len(options) == 3
    assert not any("(differ)" in option for option in options)  # at temperature 0, both methods write the same texts
    compared.locator("select").select_option("1")
    expect(compared.locator(".texts .status")).to_contain_text("Both wrote the same text.")
    compared.locator(".about button").first.click()
    expect(view(calibrate)).to_be_visible()
    expect(view(calibrate)).to_have_attribute("data-pinned", re.compile(r"\d"))
    compared_run = view(calibrate).get_attribute("data-run") or ""
    calibrate.get_by_role("tab", name="Calibrate").click()
    choose_from(calibrate, "against", "against …")
    expect(compared).to_be_hidden()
    step = shown_step(rows(calibrate).last)
    rows(calibrate).last.click()
    expect(view(calibrate)).to_be_visible()
    expect(view(calibrate)).not_to_have_attribute("data-run", compared_run)
    expect(view(calibrate)).to_have_attribute("data-pinned", str(step))
