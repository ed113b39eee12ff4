"""The Race and what-if views in a real browser, on the recorded race."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr
import pytest
from playwright.sync_api import expect

from app.methods import lane_title
from app.race.run import recorded_race
from app.race.tab import RaceView, drawing
from app.race.whatif import WhatIfView, recorded_answers
from tests.e2e.driving import alone


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """Both views alone."""
    with gr.Blocks() as demo:
        RaceView(drawing(recorded_race()))
        WhatIfView(recorded_answers())
    with alone(browser, demo, viewport={"width": 1100, "height": 1400}) as page:
        yield page


def data(page: Any, name: str) -> str:
    return page.evaluate("name => document.querySelector('#race [data-state]').dataset[name]", name)


def seek(page: Any, share: float) -> None:
    page.locator("#race .time").evaluate(
        "(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", round(1000 * share)
    )


def visible_tokens(page: Any) -> list[int]:
    return page.locator("#race .lane").evaluate_all(
        "lanes => lanes.map(l => l.querySelectorAll('.words .tok:not([hidden])').length)"
    )


def test_a_recorded_race_replays_by_itself_and_can_be_scrubbed(page: Any) -> None:
    race = recorded_race()
    page.wait_for_selector("#race [data-playing=true]", state="attached")
    assert "A recorded race" in page.locator("#race .stage").text_content()
    assert "measured on" in page.locator("#race .stage").text_content()
    assert page.locator("#race tbody tr").count() == len(race.lanes)
    seek(page, 0.5)
    assert data(page, "playing") == "false"
    end = max(lane.trace.totals.seconds for lane in race.lanes)
    at = float(data(page, "time"))
    assert at == pytest.approx(end / 2, rel=0.01)
    expected = [1 + sum(len(s.committed) for s in lane.trace.steps if s.elapsed <= at) for lane in race.lanes]
    assert all(abs(a - b) <= 16 for a, b in zip(visible_tokens(page), expected, strict=True))
    seek(page, 1)
    assert visible_tokens(page) == [lane.trace.totals.tokens for lane in race.lanes]
    texts = page.locator("#race .lane .words").evaluate_all("all => all.map(e => e.textContent)")
    assert texts == [
        "".join(c.text for s in (lane.trace.prefill, *lane.trace.steps) for c in s.committed) for lane in race.lanes
    ]
    ends = sorted(zip(race.methods, race.lanes, strict=True), key=lambda end: end[1].trace.totals.seconds)
    order = "; ".join(lane_title(lane) for lane, _ in ends)
    assert page.locator("#race [aria-live=polite]").text_content() == f"Finish order: {order}."
    winner = page.locator(f"#race .track[data-method='{ends[0][0]}'] .result").text_content()
    assert winner.startswith("1st · ")
    seek(page, 0)
    assert visible_tokens(page) == [len(lane.trace.prefill.committed) for lane in race.lanes]  # of prefill
    lane = page.locator("#race .lane .words").first
    lane.evaluate("e => { e.style.height = '2.5em'; }")  # less than its text takes
    seek(page, 1)
    assert lane.evaluate("e => e.scrollTop > e.scrollHeight - e.clientHeight - 12")  # it follows its text
    seek(page, 0)
    # by keyboard alone
    page.locator("#race .play").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#race [data-playing=true]", state="attached")
    page.keyboard.press("Enter")
    page.wait_for_selector("#race [data-playing=false]", state="attached")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    assert visible_tokens(page) == [lane.trace.totals.tokens for lane in race.lanes]
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#race .speeds input:checked").evaluate("e => e === document.activeElement")
    # where motion is not wanted, the end is shown until one presses play
    page.emulate_media(reduced_motion="reduce")
    page.reload()
    page.wait_for_selector("#race .track")
    assert visible_tokens(page) == [lane.trace.totals.tokens for lane in race.lanes]
    assert data(page, "playing") == "false"


def test_the_what_if_figures_mark_the_recorded_setting_and_have_a_table(page: Any) -> None:
    figures = page.locator("#whatif .figure")
    assert figures.count() == 4
    page.locator("#whatif [data-figure=K]").scroll_into_view_if_needed()  # figures are drawn when they come into view
    page.wait_for_selector("#whatif [data-figure=K] .main-svg")
    assert "recorded: 4" in page.locator("#whatif [data-figure=K] .xtitle").text_content()
    figures.first.get_by_role("button", name="Table").click()
    rows = page.locator("#whatif [data-figure=K] tbody tr").all_text_contents()
    assert any(words.startswith("K = 4D²SD") for words in rows)
    page.locator("#whatif [data-figure=γ]").scroll_into_view_if_needed()
    names = page.locator("#whatif [data-figure=γ] .plot .legendtext")
    expect(names).to_have_count(5)  # four methods and the recorded run
