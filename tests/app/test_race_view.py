"""The Race and what-if views in a real browser, on the recorded race and on hostile text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr
import pytest
from msgspec import structs
from playwright.sync_api import expect

from app.models import named
from app.race.lanes import Lane, Race, recorded_race
from app.race.view import RaceView, drawing
from app.race.whatif import WhatIfView, recorded_answers
from app.view import ROUTE
from tests.app.test_explore_view import HOSTILE


def hostile_race() -> Race:
    """The recorded race with every text of its first steps replaced, and a lane that broke off."""
    race = recorded_race()
    first, *rest = race.lanes
    trace = first.trace
    steps = [
        structs.replace(step, committed=tuple(structs.replace(c, text=text) for c in step.committed))
        for step, text in zip(trace.steps, HOSTILE, strict=False)
    ]
    return replace(race, lanes=(Lane(replace(trace, steps=tuple(steps))), Lane(rest[0].trace, HOSTILE[1]), *rest[1:]))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Both views alone."""
    with gr.Blocks() as demo:
        view = RaceView(drawing(recorded_race()))
        WhatIfView(recorded_answers())
        gr.Button("nasty", elem_id="nasty").click(lambda: drawing(hostile_race()), None, view, show_progress="hidden")
        gr.Button("recorded", elem_id="recorded").click(
            lambda: drawing(recorded_race()), None, view, show_progress="hidden"
        )
        gr.Button("empty", elem_id="empty").click(lambda: drawing(Race("", ())), None, view, show_progress="hidden")
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, app_kwargs={"routes": [ROUTE]})
    yield url
    demo.close()


@pytest.fixture(scope="module")
def opened(browser: Any, address: str) -> Iterator[Any]:
    """A window for all tests: they say which time of the race they look at, or open it anew."""
    page = browser.new_page(viewport={"width": 1100, "height": 1400})
    page.set_default_timeout(20_000)
    page.wrong = []
    page.on("dialog", lambda d: (page.wrong.append(d.message), d.dismiss()))
    page.on("pageerror", lambda e: page.wrong.append(str(e)))
    page.goto(address)
    yield page
    page.close()


@pytest.fixture
def page(opened: Any) -> Iterator[Any]:
    if opened.locator("#race .empty").is_visible() or opened.locator("#race .problem").count():
        opened.click("#recorded")
    opened.wait_for_selector("#race .stage:not([hidden]) .track")
    opened.wait_for_selector("#race .problem", state="detached")
    yield opened
    assert opened.wrong == []
    assert opened.evaluate("window.__pwned") is None


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
    page.reload()
    page.wait_for_selector("#race [data-playing=true]", state="attached")
    assert "A recorded race" in page.locator("#race .stage").text_content()
    prompt = str(race.lanes[0].trace.header["prompt"])[:20]
    assert f"“{prompt}" in page.locator("#race .status").first.text_content()
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
    assert page.locator("#race .track .result").first.text_content()
    seek(page, 0)
    assert visible_tokens(page) == [len(lane.trace.prefill.committed) for lane in race.lanes]  # of prefill


def test_the_finish_order_is_that_of_the_measured_times(page: Any) -> None:
    seek(page, 1)
    race = recorded_race()
    ends = sorted(zip(race.methods, race.lanes, strict=True), key=lambda end: end[1].trace.totals.seconds)
    order = "; ".join(named(lane).rpartition(" (")[0] for lane, _ in ends)
    assert page.locator("#race [aria-live=polite]").text_content() == f"Finish order: {order}."
    winner = page.locator(f"#race .track[data-method='{ends[0][0]}'] .result").text_content()
    assert winner.startswith("1st · ")


def test_the_keyboard_reaches_everything(page: Any) -> None:
    page.locator("#race .play").focus()
    seek(page, 0)
    page.keyboard.press("Enter")
    page.wait_for_selector("#race [data-playing=true]", state="attached")
    page.keyboard.press("Enter")
    page.wait_for_selector("#race [data-playing=false]", state="attached")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    assert visible_tokens(page) == [lane.trace.totals.tokens for lane in recorded_race().lanes]
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    chosen = page.locator("#race .speeds input:checked")
    assert chosen.evaluate("e => e === document.activeElement")
    assert chosen.get_attribute("value") in {"1", "0.5", "0.25", "0.1"}


def test_reduced_motion_shows_the_end_until_play_is_pressed(page: Any) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.reload()
    page.wait_for_selector("#race .track")
    assert visible_tokens(page) == [lane.trace.totals.tokens for lane in recorded_race().lanes]
    assert data(page, "playing") == "false"
    page.emulate_media(reduced_motion="no-preference")


def test_hostile_text_and_sentences_stay_text(page: Any) -> None:
    page.click("#nasty")
    page.wait_for_selector("#race .problem")
    seek(page, 1)
    assert page.locator("#race .problem").text_content() == HOSTILE[1]
    assert page.locator("#race .words :is(script, img, svg)").count() == 0
    shown = page.locator("#race .lane").first.locator(".words").text_content()
    assert HOSTILE[0] in shown
    assert HOSTILE[2] in shown
    page.click("#empty")
    page.wait_for_selector("#race .empty:not([hidden])")


def test_the_what_if_figures_mark_the_recorded_setting_and_have_a_table(page: Any) -> None:
    figures = page.locator("#whatif .figure")
    assert figures.count() == 4
    page.locator("#whatif [data-figure=K]").scroll_into_view_if_needed()  # figures are drawn when they come into view
    page.wait_for_selector("#whatif [data-figure=K] .main-svg")
    assert "recorded: 4" in page.locator("#whatif [data-figure=K] .xtitle").text_content()
    figures.first.get_by_role("button", name="Table").click()
    rows = page.locator("#whatif [data-figure=K] tbody tr").all_text_contents()
    assert any(words.startswith("K = 4d2sd") for words in rows)
    page.locator("#whatif [data-figure=γ]").scroll_into_view_if_needed()
    names = page.locator("#whatif [data-figure=γ] .plot .legendtext")
    expect(names).to_have_count(5)  # four methods and the recorded run
