"""Explore in a real browser."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
from playwright.sync_api import Page, expect

import d2sd
from app import models, presets, settings
from d2sd.trace.metrics import verdict
from tests.e2e.driving import (
    choose_from,
    choose_method,
    choose_own_folder,
    finished,
    fold,
    output_text,
    pin,
    problem,
    set_number,
    start,
    unfold,
    view,
    window,
    written,
)

pytestmark = pytest.mark.e2e
RUN = presets.opening().trace()
REPAIRED = presets.opening().instructive
# Prompt and number of tokens. Plain decoding does not stop early: half a minute, and as much again for its timing.
ENDLESS = "🙂", 2000
PLACES = "(parts) => parts.map((part) => JSON.stringify(part.getBoundingClientRect()))"


@pytest.fixture
def used(module_page: Page) -> Page:
    """The window of this module as earlier tests have left it, for tests that start a run themselves."""
    for _ in range(3):  # for a node, Details and the step
        module_page.keyboard.press("Escape")
    choose_method(module_page, d2sd.DecodeConfig().method)
    return module_page


def fits(page: Page) -> None:
    """Wait until the page fits the window down to its last line, without scrolling."""
    page.wait_for_function(
        "document.querySelector('#numbers').getBoundingClientRect().bottom <= innerHeight"
        " && document.documentElement.scrollHeight <= innerHeight"
    )


def has(page: Page, **selected: object) -> None:
    """Wait until the view has these data attributes."""
    for name, value in selected.items():
        expect(view(page)).to_have_attribute(f"data-{name}", str(value))


def test_explore_fits_laptop_and_opens_details_and_examples(shown: Page):
    fits(shown)
    large = shown.viewport_size
    shown.set_viewport_size({"width": 1280, "height": 720})
    try:
        shown.wait_for_function("document.querySelector('#explorer .drawing').clientHeight >= 280")
        fits(shown)
        details = shown.locator("#details")
        expect(details).to_be_hidden()
        shown.locator("#tree g.node").nth(1).click()
        expect(details).to_contain_text("Top choices of the large model")
        shown.keyboard.press("Escape")
        expect(details).to_be_hidden()
        prompt, story = shown.locator("#prompt textarea"), shown.locator("#examples-tiny button").nth(1)
        expect(story).to_be_hidden()
        prompt.click()
        assert prompt.bounding_box()["height"] >= 100
        story.click()
        expect(prompt).not_to_have_value(str(presets.opening().header["prompt"]))
        prompt.fill(str(presets.opening().header["prompt"]))  # else the next test would reopen the page
    finally:
        shown.set_viewport_size(large)


def test_step_and_node_are_chosen_in_text_timeline_and_tree(shown: Page):
    step = RUN.steps[REPAIRED]
    texts = [token.text for token in step.committed]
    assert output_text(shown) == RUN.finished.text
    words = shown.locator(f"#text .tok[data-step='{REPAIRED}']")
    pair = next(pair for pair in pairwise(texts) if all(re.fullmatch(r" \w+", text) for text in pair))
    find = """words => window.find(words, true)
        && [getSelection().anchorNode, getSelection().focusNode].map((n) => n.parentElement.closest('#text .tok')?.textContent)"""
    assert shown.evaluate(find, "".join(pair).strip()) == list(pair)  # the browser's search finds words across tokens
    shown.evaluate("getSelection().removeAllRanges()")

    words.first.click()
    has(shown, pinned=REPAIRED, node=step.committed[0].node)
    words.last.click()
    has(shown, node="bonus")
    expect(shown.locator("#follow")).to_have_text(f"Step {REPAIRED + 1} of {len(RUN.steps)} ✕")
    expect(shown.locator("#text .tok.pinned")).to_have_count(len(texts))
    expect(shown.locator("#tree .unread").first).to_have_text(re.compile(r"^\d+ not read$"))  # cut by the node budget
    rest = shown.locator("#tree .more text")
    drawn = shown.locator("#tree g.node").count()
    assert drawn + sum(int(more.split()[1]) for more in rest.all_text_contents()) == len(step.nodes) + 1
    rest.first.hover()  # draws the whole branch while the pointer is there
    expect(shown.locator("#tree .whole")).to_have_count(1)
    shown.mouse.move(0, 0)
    expect(shown.locator("#tree g.node")).to_have_count(drawn)
    shown.keyboard.press("w")
    expect(shown.locator("#whole")).to_have_attribute("aria-pressed", "true")
    if rest.count():  # some lanes do not fit
        rest.first.hover()
    states = Counter(node.state for node in step.nodes) + Counter(["bonus"])
    expect(shown.locator("#tree g.node")).to_have_count(states.total())
    drawn = shown.locator("#tree g.node").evaluate_all("all => all.map(n => n.dataset.state)")
    assert Counter(drawn) == states

    shown.mouse.move(0, 0)
    shown.locator("#follow").click()
    has(shown, pinned="")
    box = shown.locator("#timeline").bounding_box()
    shown.mouse.move(box["x"] + 5, box["y"] + 20)
    shown.mouse.down()
    shown.mouse.move(box["x"] + box["width"] * (REPAIRED + 0.5) / max(8, len(RUN.steps)), box["y"] + 20, steps=4)
    shown.mouse.up()
    has(shown, pinned=REPAIRED)
    wrong = next(n.id for n in step.nodes if n.state == "rejected" and n.parent in (0, *step.accepted))
    wanted = next(choice.text for choice in step.choices if choice.node == step.nodes[wrong].parent)
    shown.locator(f"#tree g.node[data-node='{wrong}'] .shape").click()
    has(shown, node=wrong)
    expect(shown.locator("#details")).to_contain_text(f"Rejected: the large model chose “{wanted.replace(' ', '␣')}”")
    shown.mouse.move(0, 0)
    expect(shown.locator(".tip")).to_be_hidden()
    shown.locator("#text .tok[data-step='0']").first.hover()  # the node is selected in its own step only
    has(shown, step=0)
    expect(shown.locator("#tree .ring")).to_have_count(0)


def test_explore_keys_walk_zoom_and_play(shown: Page):
    press = shown.keyboard.press
    world = shown.locator("#tree g.world")
    press("Home")
    has(shown, step=0)
    before = world.get_attribute("transform")
    shown.locator("#tree").hover()
    shown.mouse.wheel(0, -200)
    expect(world).not_to_have_attribute("transform", before)
    press("f")
    expect(world).to_have_attribute("transform", before)
    press("ArrowRight")
    has(shown, step=1)
    press("ArrowDown")
    expect(view(shown)).to_have_attribute("data-node", re.compile(r"\d"))
    press("?")
    expect(shown.locator("dialog.help")).to_be_visible()
    press("Escape")
    press("Escape")
    has(shown, node="")
    press("Space")  # plays this step, even if the dialog's button has the focus
    expect(shown.locator("#follow")).to_have_attribute("data-state", "playing")
    press("Space")
    expect(shown.locator("#follow")).not_to_have_attribute("data-state", "playing")

    pin(shown, REPAIRED)
    picture = """() => ['#tree .world', '#strip svg'].map((part) => document.querySelector(part).outerHTML.replaceAll(' style=""', ""))"""
    whole = shown.evaluate(picture)
    press("Shift+5")
    expect(shown.locator("#explorer .spoken")).to_contain_text("verify: The large model reads 17 nodes in one pass")
    undecided = shown.locator("#tree g.node[data-state=accepted].yet")
    expect(undecided).to_have_count(len(RUN.steps[REPAIRED].accepted))
    press("Shift+6")
    expect(undecided).to_have_count(0)
    assert shown.evaluate(picture) == whole


def test_finder_visits_matching_steps(shown: Page):
    places = [n for n, step in enumerate(RUN.steps) if verdict(step) == "repaired"]
    shown.keyboard.press("Home")
    shown.get_by_role("button", name="Find", exact=True).click()
    shown.locator("[data-outcome=repaired]").click()
    has(shown, pinned=places[0])  # a link that is copied now contains this step
    shown.keyboard.press("n")
    has(shown, step=places[1])
    expect(shown.locator(".finder .count")).to_have_text(f"2 of {len(places)}")
    shown.locator("[data-outcome=repaired]").click()
    expect(shown.locator("#step-filter")).to_have_value("any")
    shown.get_by_role("button", name="Find", exact=True).click()


def test_strip_click_redrafts_from_clicked_position(shown: Page):
    shown.locator("#text .tok[data-step='1']").first.click()
    card, places = shown.locator(".redraft-box .card"), shown.locator("#strip .places button")
    recorded = presets.opening().trace().steps[1]
    for prefix in (recorded.selected_prefixes[0], 9):
        places.nth(prefix).click()
        expect(card).to_contain_text(re.compile("after the .* token.It would have added"))
        fits(shown)
    expect(card).to_contain_text("Second drafts started after")
    places.first.focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        shown.keyboard.press(key)
    expect(card).to_contain_text("after the second token?It would have added")
    expect(view(shown)).to_have_attribute("data-step", "1")  # the arrows moved along the strip, not to another step
    shown.keyboard.press("Escape")
    expect(card).to_have_count(0)


def test_be_the_drafter_hides_tokens_until_answer(shown: Page):
    step = presets.opening().trace().steps[1]
    words = "".join(c.text for c in step.committed)
    game, text = shown.locator("#explorer .typed"), shown.locator("#explorer .views")
    shown.locator("#text .tok[data-step='1']").first.click()
    expect(text).to_contain_text(words.strip(), use_inner_text=True)
    shown.get_by_role("button", name="Be the drafter").click()
    field, lane = shown.locator("#text .typing"), shown.locator("#tree .node.yours")
    expect(field).to_be_focused()
    expect(text).not_to_contain_text(words.strip(), use_inner_text=True)
    expect(shown.locator("#tree g.node.first").first).to_be_hidden()
    shown.locator("#text .tok").first.hover()  # previews nothing: the question stays
    shown.keyboard.type(f"{''.join(c.text for c in step.committed[:2]).strip()} <b>")
    expect(field).to_contain_text("<b>")
    shown.keyboard.press("Enter")
    expect(game.locator(".said")).to_contain_text("Verified by the large model")
    expect(shown.locator("#sentence h2")).to_contain_text("You: two accepted.")
    expect(field).to_have_count(0)
    expect(lane.and_(shown.locator(".accepted"))).to_have_count(2)
    wanted = step.committed[2].text.strip()
    expect(lane.and_(shown.locator(".rejected"))).to_have_text(re.compile(rf"<instead\s+{wanted}"))
    expect(game.locator(".names li").nth(2)).to_have_text("you: “<”, rejected")
    expect(shown.locator("#tree b")).to_have_count(0)
    expect(shown.locator("#tree g.node.first").first).to_be_visible()
    expect(game.get_by_role("button", name="Next")).to_be_focused()
    shown.keyboard.press("Enter")
    expect(view(shown)).to_have_attribute("data-pinned", "2")
    shown.keyboard.press("Escape")
    expect(game).to_be_hidden()


def test_settings_describe_limits_of_methods_and_models(shown: Page):
    for method in ("ddtree", RUN.header["method"]):
        choose_method(shown, method)
        unfold(shown)
        expect(shown.locator("#method-info")).to_contain_text(d2sd.METHODS[method].sentence)
        used = settings.used_by(method)
        for setting in (s for s in settings.SETTINGS if s.kind != "flag"):
            kind = "input" if setting.kind == "choice" else "input[type=number]"
            field = shown.locator(f"#{settings.element(setting)}").locator(kind).first
            expect(field).to_be_visible(visible=setting.name in used)
    fold(shown)
    shown.locator("#prompt textarea").focus()
    expect(shown.locator("#examples-tiny")).to_contain_text(presets.TINY)
    choose_own_folder(shown)
    fold(shown)
    shown.locator("#prompt textarea").focus()
    expect(shown.locator("#examples-smollm2")).to_be_visible()
    expect(shown.locator("#examples-tiny")).to_be_hidden()
    choose_from(shown, "model", "tiny (bundled)")
    unfold(shown)
    expect(shown.get_by_label("Folder with target/")).to_be_hidden()
    fold(shown)


def test_run_streams_engine_generation_also_cost_aware(used: Page):
    prompt = "One day, a small dog named Max found a shiny key."
    start(used, prompt, 80)
    finished(used)
    limited = d2sd.DecodeConfig("d2sd", 80, node_budget=16)  # on a CPU, trees have as many nodes as a block
    expected = models.engine(models.model_set("tiny")).generate(prompt, limited)
    assert output_text(used) == expected.finished.text
    limited_here, whole, quickest = used.locator("#cost-aware input").all()
    used.locator("#full-tree").click()
    expect(whole).to_be_checked()
    written(used, expected.finished.text)
    finished(used)
    unfold(used)
    quickest.check(force=True)
    fold(used)
    start(used, prompt)
    finished(used)
    written(used, expected.finished.text)
    used.reload()
    expect(quickest).to_be_checked()
    unfold(used)
    limited_here.check(force=True)
    fold(used)


def test_nodes_follow_block_unless_user_sets_them(used: Page):
    unfold(used)
    gamma, nodes = (used.locator(f"#{name} input") for name in ("gamma", "budget"))
    limited, whole, quickest = used.locator("#cost-aware input").all()
    expect(nodes).to_have_value("16")
    gamma.fill("6")
    expect(nodes).to_have_value("6")
    gamma.fill("")
    expect(nodes).to_have_value("16")
    for choice, value in ((whole, ""), (limited, "16"), (quickest, ""), (limited, "16")):
        choice.check(force=True)
        expect(nodes).to_have_value(value)
    nodes.fill("12")
    gamma.fill("8")
    quickest.check(force=True)
    expect(nodes).to_have_value("12")  # the user's own limit
    gamma.fill("")
    limited.check(force=True)
    nodes.fill("16")
    fold(used)


def test_waiting_window_is_told_and_sees_only_own_run(used: Page, laptop, address):
    with window(laptop, address) as other:
        choose_method(used, "autoregressive")
        run = start(used, *ENDLESS)
        recorded = view(other).get_attribute("data-run")
        other.locator("#run").click()
        expect(problem(other)).to_have_value(re.compile("Another run is in progress"))
        assert view(other).get_attribute("data-run") == recorded
        used.locator("#stop").click()
        expect(view(other)).not_to_have_attribute("data-run", recorded)
        expect(problem(other)).to_be_hidden()
        assert view(other).get_attribute("data-run") != run
    assert view(used).get_attribute("data-run") == run
    assert int(view(used).get_attribute("data-steps") or 0) < ENDLESS[1] - 1


def test_bad_input_shows_sentence_and_keeps_run(used: Page):
    run, text = view(used).get_attribute("data-run"), output_text(used)
    before = used.locator("#branches input[type=number]").input_value()
    sentence = re.compile("must be between 1 and 64")
    aloud = used.locator("#settings").get_by_role("status").filter(has_text=sentence)
    set_number(used, "branches", "99")
    used.locator("#run").click()
    expect(problem(used)).to_have_value(sentence)
    expect(aloud).to_have_count(1)  # announced by screen readers
    assert (view(used).get_attribute("data-run"), output_text(used)) == (run, text)
    set_number(used, "branches", before)
    expect(problem(used)).to_be_hidden()
    expect(aloud).to_have_count(0)  # emptied, so that an equal sentence is announced again


def test_enter_runs_and_shift_enter_starts_a_line(used: Page):
    run, prompt = view(used).get_attribute("data-run"), used.locator("#prompt textarea")
    prompt.fill("One day,")
    prompt.press("Shift+Enter")
    used.keyboard.type("a cat")
    expect(prompt).to_have_value("One day,\na cat")
    assert view(used).get_attribute("data-run") == run
    prompt.press("Enter")
    expect(view(used)).not_to_have_attribute("data-run", str(run))
    expect(prompt).to_have_value("One day,\na cat")
    finished(used)


def test_problem_is_a_line_of_the_bar_with_buttons_that_help(shown: Page):
    bar, run = shown.locator("#settings > .form").first.bounding_box(), shown.locator("#run")
    places = shown.locator("#explorer .views > *").evaluate_all(PLACES)
    choose_own_folder(shown)
    fold(shown)
    run.click()
    expect(problem(shown)).to_have_value(re.compile("There is no folder yet"))
    line = shown.locator("#notice").bounding_box()
    assert bar is not None
    assert line is not None
    assert bar["y"] < line["y"] < line["y"] + line["height"] <= bar["y"] + bar["height"] + 1
    assert shown.locator("#explorer .views > *").evaluate_all(PLACES) == places  # nothing moves
    shown.get_by_role("button", name="Give a folder").click()
    expect(shown.get_by_label("Folder with target/")).to_be_focused()
    fold(shown)
    shown.get_by_role("button", name="Use tiny").click()
    expect(shown.locator("#model input")).to_have_value("tiny (bundled)")
    expect(problem(shown)).to_be_hidden()
    expect(shown.locator("#helps")).to_be_hidden()


def test_token_opens_one_card_and_escape_closes_the_topmost_thing(shown: Page):
    pin(shown, 3)
    shown.locator("#open-facts").click()
    token = shown.locator("#tree g.node.rejected .shape").first
    token.hover()
    expect(shown.locator("#explorer .tip")).to_be_visible()
    token.click()
    expect(shown.locator("#explorer .tip")).to_be_hidden()
    expect(shown.locator("#details")).to_contain_text("Top choices of the large model")
    shown.get_by_role("button", name="Find").click()
    opened_ones = [
        shown.locator("#step-filter"),
        shown.locator("#details:not([data-node=''])"),
        shown.locator("#details"),
        shown.locator("#explorer [data-state='pinned']"),
    ]
    for at, part in enumerate(opened_ones):
        expect(part).to_be_visible()
        shown.keyboard.press("Escape")
        expect(part).to_be_hidden()
        for other in opened_ones[at + 1 :]:
            expect(other).to_be_visible()
