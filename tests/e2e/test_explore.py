"""Explore as a person uses it, in a real browser."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Page, expect

import d2sd
from app import models, presets, settings
from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.decoding.generation import Generation
from tests.e2e.driving import (
    PATIENCE,
    choose_method,
    finished,
    output_text,
    problem,
    set_number,
    start,
    unfold,
    view,
    window,
)

pytestmark = pytest.mark.e2e


@pytest.fixture
def used(module_page: Page) -> Page:
    """A window for tests that start a run themselves, whatever was shown before: opened once for all of them."""
    for _ in range(2):  # a node, the step
        module_page.keyboard.press("Escape")
    choose_method(module_page, d2sd.DecodeConfig().method)
    return module_page


@pytest.fixture(scope="module")
def other(laptop, address):
    """A second window beside it, whatever it has run before."""
    with window(laptop, address) as page:
        yield page


def test_models_load_with_the_first_run_only():
    from app.layout import build

    models._shelf.bundled.clear()
    build()
    assert not models.loaded(models.Chosen("tiny"))


def test_a_run_streams_and_shows_what_the_engine_generates(used: Page):
    prompt = "One day, a small dog named Max found a shiny key."
    start(used, prompt, 64)
    finished(used)
    expected = models.engine(models.Chosen("tiny")).generate(prompt, d2sd.DecodeConfig("d2sd", 64))
    assert output_text(used) == expected.finished.text
    assert int(view(used).get_attribute("data-steps") or 0) == len(expected.steps)
    assert used.locator("#text .tok.first").count() + used.locator("#text .tok.second").count() > 5
    start(used, f"{prompt} " * 8, 128)  # more lines than the pane shows
    finished(used)
    used.keyboard.press("End")
    used.wait_for_function(
        "() => { const e = document.querySelector('#text'); const most = e.scrollHeight - e.clientHeight;"
        " return most > 0 && e.scrollTop > most - 8; }"
    )


def test_a_full_tree_that_was_slower_is_run_as_quickest_here_with_one_click(used: Page, monkeypatch):
    """Drafts take 50 ms longer. A reload keeps the choice."""
    draft = BlockDrafter.draft
    monkeypatch.setattr(BlockDrafter, "draft", lambda *a: time.sleep(0.05) or draft(*a))
    choice = used.locator("#cost-aware input")
    expect(choice.nth(0)).to_be_checked()
    slow = start(used, "One day, a bird sang.", 16)
    finished(used)
    text = output_text(used)
    expect(used.locator("#numbers .gist")).to_contain_text("a full tree costs")
    used.get_by_role("button", name="Run quickest here").click()
    expect(view(used)).not_to_have_attribute("data-run", slow, timeout=PATIENCE)
    finished(used)
    expect(choice.nth(1)).to_be_checked()
    expect(used.locator("#run-label")).to_contain_text("quickest here")
    expect(used.get_by_role("button", name="Run quickest here")).to_be_hidden()
    assert output_text(used) == text
    used.reload()
    expect(choice.nth(1)).to_be_checked(timeout=PATIENCE)
    choice.nth(0).check(force=True)


def test_who_has_to_wait_is_told_and_sees_no_run_but_its_own(used: Page, other: Page, monkeypatch):
    real = Generation.step

    def slower(self: Generation):
        time.sleep(0.05)
        return real(self)

    monkeypatch.setattr(Generation, "step", slower)
    choose_method(used, "autoregressive")
    recorded = view(other).get_attribute("data-run")
    run = start(used, "Once upon a time", 800)
    other.locator("#run").click()
    expect(problem(other)).to_have_value(re.compile("Something else is running"))
    expect(other.locator("#notice")).not_to_have_class(re.compile(r"\bproblem\b"))
    assert view(other).get_attribute("data-run") == recorded
    other.locator("#stop").click()
    expect(problem(other)).to_have_value(re.compile("Cancelled while waiting"))
    other.locator("#run").click()
    used.locator("#stop").click()
    monkeypatch.undo()
    expect(problem(other)).to_be_hidden(timeout=PATIENCE)
    finished(other)
    assert view(other).get_attribute("data-run") not in (recorded, run)
    assert view(used).get_attribute("data-run") == run


def test_bad_input_is_a_sentence_and_loses_nothing(used: Page):
    run, text = view(used).get_attribute("data-run"), output_text(used)
    used.locator("#prompt textarea").fill("   ")
    used.locator("#run").click()
    expect(problem(used)).to_have_value(re.compile("the prompt is empty"), timeout=PATIENCE)
    expect(used.locator("#notice")).to_have_class(re.compile(r"\bproblem\b"))
    assert (view(used).get_attribute("data-run"), output_text(used)) == (run, text)
    used.locator("#prompt textarea").fill("A cat")
    expect(problem(used)).to_be_hidden()  # mended: the sentence goes at once
    start(used, "A cat", 16)
    finished(used)
    for field, value, sentence in (
        ("branches", "99", "must be between 1 and 64"),
        ("gamma", "3.5", "must be a whole number"),
    ):
        before = used.locator(f"#{field} input[type=number]").input_value()
        aloud = used.locator("#settings").get_by_role("status").filter(has_text=re.compile(sentence))
        set_number(used, field, value)
        used.locator("#run").click()
        expect(problem(used)).to_have_value(re.compile(sentence), timeout=PATIENCE)
        expect(aloud).to_have_count(1)  # a screen reader says it
        set_number(used, field, before)
        expect(problem(used)).to_be_hidden()
        expect(aloud).to_have_count(0)  # so that the same sentence, come again, is said again


def test_models_say_what_they_can_do_and_why_they_cannot_run(used: Page):
    unfold(used)
    expect(used.locator("#able")).to_contain_text(presets.TINY)
    prompt = used.locator("#prompt textarea")
    prompt.focus()
    expect(used.locator("#examples-tiny")).to_be_visible()
    used.locator("#model select").select_option("folder")
    expect(used.locator("#able")).to_be_hidden()
    prompt.focus()
    expect(used.locator("#examples-smollm2")).to_be_visible()
    expect(used.locator("#examples-tiny")).to_be_hidden()
    used.locator("#model select").select_option("tiny")
    expect(used.locator("#able")).to_be_visible()
    impossible = [offer for offer in models.offers() if offer.obstacle]
    disabled = used.locator("#model option[disabled]")
    expect(disabled).to_have_count(len(impossible))
    for offer in impossible:
        expect(disabled.filter(has_text=offer.label)).to_contain_text(offer.obstacle)
    used.locator("#model select").select_option("folder")
    expect(used.locator("#second-drafter")).to_contain_text("the first one used again where there is none")
    used.get_by_label("Folder with target/").fill("/nowhere")
    used.locator("#run").click()
    expect(problem(used)).to_have_value(re.compile("/nowhere"), timeout=PATIENCE)
    used.locator("#model select").select_option("tiny")
    expect(used.get_by_label("Folder with target/")).to_be_hidden()
    start(used, "A cat", 16)
    expect(problem(used)).to_be_hidden()


def test_all_methods_explain_themselves_and_switch_off_what_they_do_not_use(shown: Page):
    for method in d2sd.METHODS.values():
        choose_method(shown, method.id)
        expect(shown.locator("#method-info")).to_contain_text(method.sentence)
        used = settings.used_by(method.id)
        for setting in (s for s in settings.SETTINGS if s.kind != "flag"):
            kind = "input" if setting.kind == "choice" else "input[type=number]"
            field = shown.locator(f"#{settings.element(setting)}").locator(kind).first
            expect(field).to_be_enabled() if setting.name in used else expect(field).to_be_disabled()
    choose_method(shown, presets.opening().header["method"])


def fits(page: Page) -> bool:
    """Whether all from the title to the line of figures is in view."""
    return page.evaluate("document.querySelector('#numbers').getBoundingClientRect().bottom <= innerHeight")


def test_a_click_on_the_strip_drafts_again_from_there(shown: Page):
    shown.locator("#text .tok[data-step='1']").first.click()
    expect(view(shown)).to_have_attribute("data-step", "1")
    card, places = shown.locator("#details .card.redraft"), shown.locator("#strip .places button")
    recorded = presets.opening().trace().steps[1]
    for prefix in (recorded.selected_prefixes[0], 9):
        places.nth(prefix).click()
        expect(places.nth(prefix)).to_have_attribute("aria-pressed", "true")
        expect(card).to_contain_text(f"From {prefix} it would have added", timeout=PATIENCE)
        assert card.locator("li").count() > 1
        assert fits(shown)
    expect(card).to_contain_text("not chosen")
    places.first.focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        shown.keyboard.press(key)
    expect(card).to_contain_text("From 2 it would have added", timeout=PATIENCE)
    expect(view(shown)).to_have_attribute("data-step", "1")  # the arrows moved along the strip
    shown.keyboard.press("Escape")
    expect(card).to_have_count(0)
    expect(view(shown)).to_have_attribute("data-pinned", "1")


def test_a_reader_plays_the_drafter_and_is_told_only_then(shown: Page):
    step = presets.opening().trace().steps[1]
    words = "".join(c.text for c in step.committed)
    game, text = shown.locator("#explorer .typed"), shown.locator("#explorer .views")
    assert words.strip() in text.inner_text()
    shown.get_by_role("button", name="Be the drafter").click()
    expect(game.locator("input")).to_be_focused()
    assert words.strip() not in text.inner_text()
    expect(shown.locator("#tree")).to_be_hidden()
    game.locator("input").fill(f"{''.join(c.text for c in step.committed[:2]).strip()} zebra")
    shown.keyboard.press("Enter")
    expect(game.locator(".source")).to_contain_text("Verified by the target", timeout=PATIENCE)
    expect(game.locator("li.right")).to_have_count(2)
    expect(game.locator("li.wrong")).to_have_count(1)
    expect(game.locator(".facts-of")).to_contain_text(f"{step.actual_boundary} of {len(step.first_draft.ids)} accepted")
    expect(game.locator(".facts-of")).to_contain_text("over 1 step: you 2.00")
    expect(shown.locator("#tree")).to_be_visible()
    expect(game.get_by_role("button", name="Next")).to_be_focused()
    shown.keyboard.press("Enter")
    expect(view(shown)).to_have_attribute("data-pinned", "2")
    shown.keyboard.press("Escape")
    expect(game).to_be_hidden()
    expect(shown.locator("#tree")).to_be_visible()


def test_it_all_fits_a_laptop_and_the_drawing_has_more_than_half_of_it(shown: Page):
    expect(shown.locator("#run-label")).to_have_text(re.compile("^A recorded run: press Run"))
    assert fits(shown)
    large = shown.viewport_size
    shown.set_viewport_size({"width": 1280, "height": 720})
    try:
        drawing = shown.locator("#explorer .drawing").bounding_box()
        assert drawing["height"] >= 400
        assert fits(shown)
        details = shown.locator("#details")
        expect(details).to_be_hidden()
        shown.locator("#tree g.node").nth(1).click()
        expect(details).to_contain_text("Target’s top choices here")
        shown.keyboard.press("Escape")
        expect(details).to_be_hidden()
        shown.get_by_role("button", name="Details").click()
        expect(details).to_contain_text("one target pass")
        shown.get_by_role("button", name="Details").click()
        prompt, story = shown.locator("#prompt textarea"), shown.locator("#examples-tiny button").nth(1)
        expect(story).to_be_hidden()
        prompt.click()
        assert prompt.bounding_box()["height"] >= 100
        story.click()
        expect(prompt).not_to_have_value(str(presets.opening().header["prompt"]))
    finally:
        shown.set_viewport_size(large)
