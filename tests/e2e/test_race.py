"""Race as a person uses it, in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from app import models, presets
from app.methods import lane_title
from app.models import Chosen
from d2sd import DecodeConfig
from tests.e2e.driving import start

pytestmark = pytest.mark.e2e
PROMPT = "One day, a small dog"


@pytest.fixture
def race(module_page: Page) -> Page:
    """The tab Race as tests before have left it."""
    module_page.get_by_role("tab", name="Race").click()
    expect(module_page.locator("#race .track").first).to_be_visible(timeout=20_000)
    return module_page


def number(page: Page, elem_id: str, value: int) -> None:
    field = page.locator(f"#{elem_id} input[type=number]")
    field.fill(str(value))
    field.blur()


def ask_only(page: Page, sweep: str) -> None:
    for label in page.locator("#whatif-sweeps label").all():
        label.locator("input").set_checked((label.text_content() or "").strip() == sweep)


def choose(page: Page, *methods: str) -> None:
    names = [lane_title(method) for method in methods]
    for label in page.locator(".race-methods label:visible").all():
        label.locator("input").set_checked((label.text_content() or "").strip() in names)


def test_a_mistake_then_a_race_of_ones_own_then_what_if(race: Page):
    title = race.locator("#race .title").text_content() or ""
    choose(race)
    race.locator("#start-race").click()
    expect(race.locator("#race-notice textarea")).to_have_value(re.compile("no method is ticked"), timeout=20_000)
    expect(race.locator("#race .title")).to_have_text(title)
    race.locator("#race-prompt textarea").fill(PROMPT)
    choose(race, "autoregressive", "d2sd")
    number(race, "race-max-tokens", 24)
    race.locator("#start-race").click()
    expect(race.locator("#race .title")).to_have_text("Your race", timeout=60_000)
    expect(race.locator("#race tbody tr")).to_have_count(2)
    expect(race.locator("#race tbody tr[data-method=d2sd] .same")).to_have_text("✓ yes")
    expect(race.locator("#race tbody tr[data-method=autoregressive]")).to_contain_text("1.00×")
    race.locator("#race .time").evaluate("e => { e.value = 1000; e.dispatchEvent(new Event('input')); }")
    expected = models.engine(Chosen("tiny")).generate(PROMPT, DecodeConfig("d2sd", 24))
    words = race.locator("#race .lane[data-method=d2sd] .words").text_content()
    assert words == "".join(c.text for s in (expected.prefill, *expected.steps) for c in s.committed)

    ask_only(race, "Branches K")
    race.locator("#ask").click()
    expect(race.locator("#whatif .figure")).to_have_count(1, timeout=60_000)
    expect(race.locator("#whatif [data-state]")).to_have_attribute("data-state", "done", timeout=60_000)
    alpha = f"α {expected.totals.mean_acceptance_length:.2f}"
    expect(race.locator("#whatif .status")).to_contain_text(alpha)
    expect(race.locator("#whatif .question")).to_contain_text(alpha)


def test_the_run_in_explore_can_be_asked(race: Page):
    race.get_by_role("tab", name="Explore").click()
    start(race, "One day, a cat", 24)
    race.get_by_role("tab", name="Race").click()
    race.locator("#whatif-source input").click()
    race.get_by_role("option", name="The run in Explore").click()
    ask_only(race, "Node budget B")
    race.locator("#ask").click()
    heard = race.locator("#whatif .top h3, #whatif-notice textarea").first
    expect(heard).to_be_visible()
    expect(race.locator("#whatif .top h3")).to_have_text("The run in Explore", timeout=60_000)


def test_prompt_and_models_come_from_explore_unless_they_were_chosen_here(page: Page):
    def explored(prompt: str, model: str) -> None:
        page.get_by_role("tab", name="Explore").click()
        page.locator("#model select").select_option(model)
        page.locator("#prompt textarea").fill(prompt)
        page.get_by_role("tab", name="Race").click()

    prompt, model = page.locator("#race-prompt textarea"), page.locator("#race-model select")
    explored("First", presets.DSPARK)
    expect(prompt).to_have_value("First")
    expect(model).to_have_value(presets.DSPARK)
    model.select_option("tiny")
    explored("Second", presets.DSPARK)
    expect(prompt).to_have_value("Second")
    expect(model).to_have_value("tiny")
