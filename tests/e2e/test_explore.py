"""Explore as a person uses it, in a real browser."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Page, expect

import d2sd
from app import machine, models, presets, settings
from d2sd.decoding.generation import Generation
from tests.e2e.driving import (
    FREE_MEMORY,
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

HOSTILE = '<script>window.pwned=1</script> <img src=x onerror="window.pwned=1"> ${window.pwned=1} {{window.pwned=1}} ${value} \u202eabc\u202c שלום 🙂'


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


def test_opens_with_a_recorded_tree_and_no_model_loaded(shown: Page):
    expect(shown.locator("#tree g.node").first).to_be_visible(timeout=10_000)
    assert shown.locator("#tree g.node").count() > 8
    assert shown.locator("#text .tok").count() > 20


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


def test_the_end_of_a_run_is_in_view_at_its_last_step(used: Page):
    start(used, "One day, a small dog named Max found a shiny key. " * 8, 128)  # more lines than the pane shows
    finished(used)
    used.keyboard.press("End")
    used.wait_for_function(
        "() => { const e = document.querySelector('#text'); const most = e.scrollHeight - e.clientHeight;"
        " return most > 0 && e.scrollTop > most - 8; }"
    )


def test_who_has_to_wait_is_told(used: Page, other: Page, monkeypatch):
    real = Generation.step

    def slower(self: Generation):
        time.sleep(0.05)
        return real(self)

    monkeypatch.setattr(Generation, "step", slower)
    choose_method(used, "autoregressive")
    start(used, "Once upon a time", 800)
    other.locator("#run").click()
    expect(problem(other)).to_have_value(re.compile("Something else is running"))
    other.locator("#stop").click()
    expect(problem(other)).to_have_value(re.compile("Cancelled while waiting"))
    other.locator("#run").click()
    used.locator("#stop").click()
    monkeypatch.undo()
    expect(problem(other)).to_be_hidden(timeout=PATIENCE)
    finished(other)


def test_a_token_pins_its_step_in_every_view(shown: Page):
    token = shown.locator("#text .tok[data-step='3']").first
    token.click()
    expect(view(shown)).to_have_attribute("data-step", "3")
    expect(shown.locator("#timeline")).to_have_attribute("aria-valuenow", re.compile(r"^[34]$"))
    anchor = (shown.locator("#tree g.node[data-node='0']").text_content() or "").removesuffix("anchor")
    before = "".join(shown.locator("#text .tok[data-step='2']").all_text_contents())
    assert before.endswith(anchor.replace("␣", " ").replace("↵", "\n"))
    expect(shown.locator("#follow")).to_contain_text("step 4")
    for _ in range(2):  # first the node, then the step
        shown.keyboard.press("Escape")
    expect(shown.locator("#follow")).not_to_contain_text("Pinned")


def test_a_bar_of_the_timeline_pins_too(shown: Page):
    shown.locator("#text .tok[data-step='0']").first.click()
    shown.locator("#timeline").scroll_into_view_if_needed()
    box = shown.locator("#timeline").bounding_box()
    assert box
    for at in range(10, 100, 3):  # bars of a short run fill a part of it
        shown.mouse.click(box["x"] + box["width"] * at / 100, box["y"] + box["height"] * 0.8)
        if view(shown).get_attribute("data-step") != "0":
            break
    expect(view(shown)).not_to_have_attribute("data-step", "0")


def test_a_node_tells_why_it_was_rejected(shown: Page):
    steps = int(view(shown).get_attribute("data-steps") or 0)
    for step in range(steps):
        shown.locator(f"#text .tok[data-step='{step}']").first.click()
        expect(view(shown)).to_have_attribute("data-step", str(step))  # else the tree may still be the one before
        node = shown.locator("#tree g.node[data-state='rejected']").first
        if node.count():
            node.locator(".shape").click(force=True)
            expect(shown.locator("#details")).to_contain_text(re.compile("rejected", re.I))
            expect(shown.locator("#details")).to_contain_text(re.compile("target", re.I))
            return
    raise AssertionError("no rejected node in the recorded run")


def test_keys_walk_through_the_steps(shown: Page):
    shown.locator("#text .tok[data-step='1']").first.click()
    shown.keyboard.press("ArrowRight")
    expect(view(shown)).to_have_attribute("data-step", "2")
    shown.keyboard.press("Home")
    expect(view(shown)).to_have_attribute("data-step", "0")
    shown.keyboard.press("End")
    expect(view(shown)).to_have_attribute("data-step", str(int(view(shown).get_attribute("data-steps") or 0) - 1))


def test_stop_stops_within_a_step_and_keeps_what_is_there(used: Page, monkeypatch):
    real = Generation.step
    monkeypatch.setattr(Generation, "step", lambda self: time.sleep(0.01) or real(self))
    choose_method(used, "autoregressive")
    start(used, "Once upon a time, there was a", 512)
    used.locator("#stop").click()
    used.wait_for_timeout(1500)
    steps = view(used).get_attribute("data-steps")
    assert 0 < int(steps or 0) < 400
    used.wait_for_timeout(700)
    assert view(used).get_attribute("data-steps") == steps
    assert used.locator("#text .tok[data-step]").count() == int(steps or 0)  # one more is of prefill


def test_hostile_text_is_shown_as_text(used: Page):
    start(used, HOSTILE, 16)
    expect(used.locator("#text .prompt")).to_contain_text("<script>window.pwned=1</script>")
    expect(used.locator("#text .prompt")).to_contain_text("${window.pwned=1} {{window.pwned=1}} ${value}")
    finished(used)
    assert used.evaluate("window.pwned") is None
    assert used.locator("#explorer img, #explorer script").count() == 0


def test_bad_input_is_a_sentence_and_loses_nothing(used: Page):
    run, text = view(used).get_attribute("data-run"), output_text(used)
    used.locator("#prompt textarea").fill("   ")
    used.locator("#run").click()
    expect(problem(used)).to_have_value(re.compile("the prompt is empty"), timeout=PATIENCE)
    assert (view(used).get_attribute("data-run"), output_text(used)) == (run, text)
    used.locator("#prompt textarea").fill("A cat")
    expect(problem(used)).to_be_hidden()  # mended: the sentence goes at once
    start(used, "A cat", 16)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [("branches", "99", "must be between 1 and 64"), ("gamma", "3.5", "must be a whole number")],
)
def test_a_value_that_cannot_be_is_neither_mended_in_silence_nor_misnamed(shown: Page, field, value, sentence):
    before = shown.locator(f"#{field} input[type=number]").input_value()
    aloud = shown.locator("#settings").get_by_role("status").filter(has_text=re.compile(sentence))
    expect(aloud).to_have_count(0)
    set_number(shown, field, value)
    shown.locator("#run").click()
    expect(problem(shown)).to_have_value(re.compile(sentence), timeout=PATIENCE)
    expect(aloud).to_have_count(1)  # a screen reader says it
    set_number(shown, field, before)
    expect(problem(shown)).to_be_hidden()
    expect(aloud).to_have_count(0)  # so that the same sentence, come again, is said again


def test_begin_with_learn_is_a_link(page: Page):
    page.get_by_role("button", name="Begin with Learn").click()
    expect(page.locator("#learn .story section").first).to_be_visible(timeout=PATIENCE)


def test_it_is_said_what_the_bundled_model_can_do_and_the_examples_are_its_own(shown: Page):
    unfold(shown)
    expect(shown.locator("#able")).to_contain_text(presets.TINY)
    expect(shown.locator("#examples-tiny")).to_be_visible()
    shown.locator("#model select").select_option("folder")
    expect(shown.locator("#able")).to_be_hidden()
    expect(shown.locator("#examples-smollm2")).to_be_visible()
    expect(shown.locator("#examples-tiny")).to_be_hidden()
    shown.locator("#model select").select_option("tiny")
    expect(shown.locator("#able")).to_be_visible()


def test_models_that_cannot_run_here_are_shown_with_the_reason(shown: Page, monkeypatch):
    monkeypatch.setattr(machine, "memory", lambda: FREE_MEMORY)
    impossible = [offer for offer in models.offers() if offer.obstacle]
    disabled = shown.locator("#model option[disabled]")
    expect(disabled).to_have_count(len(impossible))
    for offer in impossible:
        expect(disabled.filter(has_text=offer.label)).to_contain_text(offer.obstacle)


def test_a_folder_that_does_not_load_is_a_sentence(used: Page):
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
    details = "document.querySelector('#details').scrollHeight <= document.querySelector('#details').clientHeight"
    return page.evaluate(f"document.documentElement.scrollHeight <= 900 && {details}")


def test_it_all_fits_a_laptop_without_scrolling(shown: Page):
    assert fits(shown)


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


def test_on_a_small_laptop_the_drawing_takes_two_thirds_with_the_steps_in_view(shown: Page):
    large = shown.viewport_size
    shown.set_viewport_size({"width": 1280, "height": 720})
    try:
        drawing, steps = (shown.locator(f"#explorer .{name}").bounding_box() for name in ("drawing", "steps"))
        assert drawing["height"] >= 480
        assert steps["y"] + steps["height"] <= 720
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


def test_two_windows_never_see_each_others_runs(used: Page, other: Page):
    recorded = view(other).get_attribute("data-run")
    run = start(used, "The red boat", 32)
    assert view(other).get_attribute("data-run") == recorded
    second = start(other, "A green frog", 32)
    finished(used)
    finished(other)
    assert (view(used).get_attribute("data-run"), view(other).get_attribute("data-run")) == (run, second)
    assert output_text(used) != output_text(other)


def test_news_do_not_look_like_problems(used: Page, monkeypatch):
    box = used.locator("#notice")
    colour = "e => getComputedStyle(e).color"
    used.locator("#prompt textarea").fill("")
    used.locator("#run").click()
    expect(problem(used)).to_have_value(re.compile("the prompt is empty"), timeout=PATIENCE)
    expect(box).to_have_class(re.compile(r"\bproblem\b"))
    wrong = problem(used).evaluate(colour)
    slow = models.engine
    monkeypatch.setattr(models, "loaded", lambda chosen: False)
    monkeypatch.setattr(models, "engine", lambda chosen: time.sleep(2) or slow(chosen))
    used.locator("#prompt textarea").fill("A cat")
    used.locator("#run").click()
    expect(problem(used)).to_have_value(re.compile("^Loading tiny"), timeout=PATIENCE)
    expect(box).to_contain_text("Please wait")
    assert problem(used).evaluate(colour) != wrong
    expect(box).to_be_hidden(timeout=PATIENCE)
