"""Calibrate as a person uses it, in a real browser."""

from __future__ import annotations

import json
import re
import time

import pytest
from playwright.sync_api import Locator, Page, expect

from app import presets
from app.jobs import Ticket
from d2sd.decoding.generation import Generation
from tests.e2e.driving import PATIENCE, drawn_figure, list_steps, set_number, view

pytestmark = pytest.mark.e2e


@pytest.fixture
def calibrate(module_page: Page) -> Page:
    """The tab Calibrate with the run in Explore measured and no file chosen, whatever tests before have done there."""
    module_page.get_by_role("tab", name="Calibrate").click()
    for clear in module_page.locator("#traces button[aria-label=Clear]").all():
        module_page.locator("#source").get_by_label("Trace files").check()
        clear.click()
    module_page.locator("#source").get_by_label("The run in Explore").check()
    expect(module_page.locator("#traces")).to_be_hidden()
    expect(module_page.locator("#calibration .what").first).to_contain_text("The run in Explore", timeout=PATIENCE)
    drawn_figure(module_page, "uniform")
    return module_page


@pytest.fixture
def measured(shown: Page) -> Page:
    """The same, for tests that measure nothing else."""
    shown.get_by_role("tab", name="Calibrate").click()
    shown.locator("#source").get_by_label("The run in Explore").check()
    drawn_figure(shown, "uniform")
    return shown


def rows(page: Page) -> Locator:
    return page.locator("#calibration .rows button")


def shown_step(row: Locator) -> int:
    """The number, from 0, of the step that a row lists."""
    return int((row.locator("b").first.text_content() or "").removeprefix("Step ")) - 1


def send(page: Page, name: str, content: bytes) -> None:
    page.locator("#source").get_by_label("Trace files").check()
    expect(page.locator("#traces")).to_be_visible()
    page.locator("#traces input[type=file]").set_input_files(
        {"name": name, "mimeType": "application/octet-stream", "buffer": content}
    )


def test_a_listed_step_opens_in_explore(measured: Page):
    steps = presets.opening().trace().steps
    expect(measured.locator("#calibration .what").first).to_contain_text("The run in Explore")
    list_steps(measured, "uniform", 9)
    expect(measured.locator("#calibration .members h3")).to_have_text("Confidence 0.9–1")
    row = rows(measured).nth(3)
    step = shown_step(row)
    assert max(steps[step].first_draft.confidence) >= 0.9
    row.click()
    expect(measured.locator("#tree")).to_be_visible()
    expect(view(measured)).to_have_attribute("data-pinned", str(step))
    expect(view(measured)).to_have_attribute("data-node", re.compile(r"^\d+$"))
    measured.get_by_role("tab", name="Calibrate").click()
    expect(drawn_figure(measured, "positions").locator(".shapelayer path").first).to_be_attached()


def test_the_drawing_library_comes_with_the_first_figure_in_view(page: Page):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "plotly" in request.url else None)
    page.get_by_role("tab", name="Learn").click()
    page.get_by_role("tab", name="Race").click()  # its figures are far below
    expect(page.locator("#whatif .figure").last).to_be_visible()
    page.wait_for_timeout(500)
    assert not asked
    assert not page.evaluate("Boolean(window.Plotly)")
    page.get_by_role("tab", name="Calibrate").click()
    page.locator("#source").get_by_label("The run in Explore").check()
    drawn_figure(page, "uniform")
    expect(page.locator("#calibration [data-figure=second] .plot")).to_be_visible()
    assert page.locator("#calibration [data-figure=second] .main-svg").count() == 0
    drawn_figure(page, "second")
    assert len(asked) == 1


def test_to_measure_without_a_file_is_a_sentence_and_the_figures_stay(calibrate: Page):
    figures = calibrate.locator("#calibration .figures")
    before = figures.text_content()
    calibrate.locator("#measure").click()
    expect(figures).to_be_visible()
    calibrate.locator("#source").get_by_label("Trace files").check()
    expect(calibrate.locator("#traces")).to_be_visible()  # Gradio has taken up the choice
    calibrate.locator("#measure").click()
    notice = calibrate.locator("#calibrate-notice textarea")
    expect(notice).to_have_value(re.compile("choose one or more trace files first"))
    assert figures.text_content() == before
    # a pasted log is answered there, and the answer goes with the source
    log = calibrate.locator("#pasted-log textarea")
    log.fill("draft acceptance = 0.25000 (100 accepted / 400 generated)")
    calibrate.locator("#measure").click()
    report = calibrate.locator("#doctor-report")
    expect(report).to_contain_text("llama.cpp", timeout=PATIENCE)
    calibrate.wait_for_timeout(500)
    expect(report).to_be_visible()
    log.fill("")
    calibrate.locator("#source").get_by_label("A prompt set").check()
    expect(report).to_be_hidden()


def test_a_file_stays_when_it_is_measured_again_and_a_bad_one_is_a_sentence(calibrate: Page, monkeypatch):
    heard: list[bool] = []
    real = Ticket.latest
    monkeypatch.setattr(Ticket, "latest", lambda ticket, number: heard.append(real(ticket, number)) or heard[-1])
    title = calibrate.locator("#calibration .what").first
    header, *lines = presets.opening().lines()
    renamed = json.dumps({**json.loads(header), "run": "f" * 32})
    send(calibrate, "mine.jsonl", "".join(f"{line}\n" for line in (renamed, *lines)).encode())
    expect(title).to_have_text("mine.jsonl", timeout=PATIENCE)
    before = len(heard)
    calibrate.locator("#measure").click()
    until = time.monotonic() + PATIENCE / 1000
    while sum(heard[before:]) < 2:  # where the call began and where it ended; an older one may end meanwhile
        assert time.monotonic() < until
        calibrate.wait_for_timeout(20)
    expect(title).to_have_text("mine.jsonl")
    figures = calibrate.locator("#calibration .figures").text_content()
    calibrate.locator("#traces button[aria-label=Clear]").first.click()
    send(calibrate, "bad <b>.jsonl", b'{"a": 1}\n')
    expect(calibrate.locator("#calibrate-notice textarea")).to_have_value(re.compile("was not read: .*line 1"))
    assert calibrate.locator("#calibration .figures").text_content() == figures


def test_a_prompt_set_needs_a_chat_template_if_asked_runs_with_progress_opens_in_explore_and_stops(
    calibrate: Page, monkeypatch
):
    calibrate.locator("#source").get_by_label("A prompt set").check()
    calibrate.locator("#calibrate-chat input").check()
    calibrate.locator("#measure").click()
    notice = calibrate.locator("#calibrate-notice textarea")
    expect(notice).to_have_value(re.compile("has no chat template"), timeout=PATIENCE)
    calibrate.locator("#calibrate-chat input").uncheck()
    set_number(calibrate, "how-many", 4)
    set_number(calibrate, "calibrate-max-tokens", 24)
    calibrate.evaluate(
        """() => {
          window.told = new Set();
          const line = document.querySelector('#calibration .line');
          const look = () => line.querySelector('progress').hidden || window.told.add(line.querySelector('.what').textContent);
          new MutationObserver(look).observe(line, { subtree: true, childList: true, characterData: true, attributes: true });
        }"""
    )
    calibrate.locator("#measure").click()
    expect(calibrate.locator("#calibration [data-done='4'], #calibration[data-done='4']")).to_be_attached(
        timeout=PATIENCE
    )
    expect(calibrate.locator("#calibration .what").first).to_have_text("4 prompts of heldout with d2sd")
    told = calibrate.evaluate("[...window.told]")
    assert told
    assert all(re.search(r": [0-3] of 4 done$", words) for words in told)
    expect(calibrate.locator("#calibration .stat").first).to_contain_text("4 runs")
    before = view(calibrate).get_attribute("data-run")
    step = shown_step(rows(calibrate).first)
    rows(calibrate).first.click()
    expect(view(calibrate)).not_to_have_attribute("data-run", before or "")
    expect(view(calibrate)).to_have_attribute("data-pinned", str(step))

    calibrate.get_by_role("tab", name="Calibrate").click()
    set_number(calibrate, "how-many", 100)
    real = Generation.step  # slowed, so that a fast machine is not done before Stop is pressed
    monkeypatch.setattr(Generation, "step", lambda self: time.sleep(0.01) or real(self))
    calibrate.locator("#measure").click()
    expect(calibrate.locator("#calibration .what").first).to_contain_text(
        re.compile(r": [1-9]\d* of 100 done"), timeout=PATIENCE
    )
    calibrate.locator("#stop-measuring").click()
    expect(calibrate.locator("#calibration .what").first).to_contain_text("stopped: ", timeout=PATIENCE)
    expect(calibrate.locator("#calibration progress")).to_be_hidden()
    expect(rows(calibrate).first).to_be_visible()
