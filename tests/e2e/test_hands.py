"""Hands on the page: presses, drags and keys in the middle of something, after something else."""

from __future__ import annotations

import random
import re
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Page, TimeoutError, expect

from app import presets
from d2sd.figures.viewer import standalone_page
from d2sd.trace.run import RecordedRun
from tests.chromium import SLOWER, new_page
from tests.e2e.driving import DRAWN, finished, fold, open_tab, opened, start, unfold
from tests.hands import QUICK, SIZES, Hands, OfflineHands, perform

pytestmark = pytest.mark.e2e
SEEDS = [3, 7, 11]  # of random actions

# Visible controls whose middle belongs to something else, each as its name and what lies there.
COVERED = """() => {
  const roots = [document];
  const controls = [];
  for (const root of roots)
    for (const element of root.querySelectorAll('*')) {
      if (element.shadowRoot) roots.push(element.shadowRoot);
      if (element.matches("button, a[href], input, select, textarea, summary, [role=button], [role=tab], [role=slider], g.node, g.more, .tok[data-step]")) controls.push(element);
    }
  const modal = document.querySelector('dialog[open]');
  const usable = (e) =>
    e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && !e.disabled && !e.closest('[inert], [aria-hidden=true]') && (!modal || modal.contains(e)) &&
    getComputedStyle(e).pointerEvents !== 'none' && [...e.getClientRects()].some((box) => box.width > 2 && box.height > 2);
  const faults = [];
  const meets = (control, x, y) => {
    const hit = control.getRootNode().elementFromPoint(x, y);
    const label = control.closest('label') ?? (control.id ? document.querySelector(`label[for="${CSS.escape(control.id)}"]`) : null);
    const panel = hit?.closest('.pays, .menu, .facts, .finding, .redraft-box, #drawer'); // open panels may cover what is not in them
    if (panel && !panel.contains(control)) return '';
    return hit && (control.contains(hit) || label?.contains(hit)) ? '' : hit ? `${hit.tagName}.${hit.getAttribute('class') ?? hit.id}` : 'nothing';
  };
  for (const control of controls.filter(usable)) {
    control.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
    const box = [...(control.querySelector(':scope > .shape, :scope > rect') ?? control).getClientRects()].find(({ width, height }) => width > 2 && height > 2);
    const clipped = control.closest('#tree, #text, #strip')?.getBoundingClientRect(); // drawings show a part of their content
    const across = [box.left + box.width / 2];
    const down = box.top + box.height / 2;
    if (control.type === 'range') {
      const share = (control.valueAsNumber - control.min) / (control.max - control.min || 1);
      across.push(box.left + 8 + share * (box.width - 16), box.left + (share < 0.5 ? 0.9 : 0.1) * box.width); // thumb, free track
    }
    for (const x of across) {
      if (clipped && (x < clipped.left || x > clipped.right || down < clipped.top || down > clipped.bottom)) continue;
      const met = meets(control, x, down);
      if (met) faults.push(`${control.tagName}.${control.getAttribute('class') ?? ''}#${control.id} “${(control.getAttribute('aria-label') ?? control.textContent).trim().slice(0, 30)}” at ${Math.round(x)}, ${Math.round(down)}: ${met}`);
    }
  }
  return faults;
}"""


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("hands") / "run.html"
    path.write_text(standalone_page(presets.opening(), "run"), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("size", "seed"),
    [
        pytest.param(size, seed, marks=[] if SEEDS.index(seed) == number else pytest.mark.soak)
        for number, size in enumerate(SIZES)
        for seed in SEEDS
    ],
)
def test_view_looks_the_same_whatever_was_pressed_before(browser, file, size, seed):
    hands = OfflineHands(browser, file, size)
    try:
        assert hands.check(seed + size[0], 8) == ""
    finally:
        hands.close()


def test_drawing_in_learn_looks_the_same_whatever_was_pressed_before(browser, class_file):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(QUICK)
    pressed, fresh = pages = [new_page(context) for _ in range(2)]
    for page in pages:
        page.goto(f"{class_file.as_uri()}#run=1&chapter=1")
        page.locator("#tour [data-ready=yes] .body p").first.wait_for()
    hands, chance = Hands(pressed, fresh), random.Random(2)
    buttons = ["#tour .rail button", "#learn-next", "#tour .move", "#tour .live input", "#tour .scene > .ways .play"]
    # fewer second drafts in “Try it”, then back to “What it buys”
    actions = [("press", "#tour .rail button", 0.75), ("press", "#live-k", 0.1), ("press", "#tour .rail button", 0.65)]
    for _ in range(6):
        press = ("press", chance.choices(buttons, [8, 4, 2, 6, 1])[0], round(chance.random(), 2))
        actions.append(chance.choice([press, press, ("key", "ArrowRight"), ("key", "ArrowLeft"), ("wait", 400)]))
    for action in actions:
        perform(pressed, action)
        pressed.evaluate("frames2()")
        if pressed.locator("#tour [data-chapter='8']").count():
            continue  # its text, and so the height of the drawing, depend on the sliders
        shown = pressed.evaluate("location.hash")
        fresh.evaluate("hash => { location.hash = hash; return frames2().then(frames2); }", shown)
        assert hands.difference() == [], action
    context.close()


def covered(page: Page) -> list[str]:
    """The controls that a click on their middle would miss."""
    page.evaluate("document.getAnimations().forEach((animation) => animation.finish())")
    return page.evaluate(COVERED)


def resized(page: Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.evaluate(
        "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(go))))"
    )


@pytest.mark.parametrize("size", [SIZES[0], pytest.param(SIZES[1], marks=pytest.mark.soak), SIZES[2]])
def test_click_in_the_middle_of_a_control_meets_it_offline(browser, class_file, size):
    page = new_page(browser, viewport={"width": size[0], "height": size[1]})
    page.goto(class_file.as_uri())
    page.locator("#tree g.node").first.wait_for()
    assert covered(page) == []
    for key in ("Shift+Digit2", "t", "q"):  # a step in the middle of playing, presented, asked about
        page.keyboard.press(key)
        resized(page, size)
        assert covered(page) == [], key
    page.keyboard.press("3")
    page.keyboard.press("t")
    resized(page, size)
    assert covered(page) == []
    for name in ("Share ▾", "When does it pay?"):
        page.locator("#explorer").get_by_role("button", name=name).click()
        resized(page, size)
        assert covered(page) == [], name
        page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.locator("dialog[open]").wait_for()
    assert covered(page) == []
    page.keyboard.press("Escape")
    page.locator("#runs button", has_text="Learn").click()
    page.locator("#tour [data-ready=yes] .body p").first.wait_for()
    for chapter in page.locator("#tour .rail button").all():
        chapter.click()
        assert covered(page) == []
    page.close()


def test_click_in_the_middle_of_a_control_meets_it_in_every_tab(page: Page):
    def meets(name: str) -> None:
        for size in SIZES:
            resized(page, size)
            with suppress(TimeoutError):  # figures move while they are drawn
                page.wait_for_function(f"() => !({COVERED})().length", timeout=20_000 * SLOWER)
            assert covered(page) == [], (name, size)

    unfold(page)
    meets("drawer")
    fold(page)
    for name in DRAWN:
        open_tab(page, name)
        meets(name)


def test_play_starts_at_its_middle_and_an_interrupted_step_leaves_nothing_behind(browser, file):
    hands = OfflineHands(browser, file, (1440, 900))
    pressed = hands.hands.pressed
    perform(pressed, ("press", ".play", 0.5))
    expect(pressed.locator(".play")).to_have_attribute("aria-label", "Pause")
    expect(pressed.locator("section.explorer")).to_have_attribute("data-stage", "draft")
    # in the middle of the step: to its end, to another step, into the quiz, to whole branches, presented, to the next step, out
    for key in [*"4516", "ArrowRight", "3", "q", "q", "w", "t", "ArrowRight", "2", "Escape", "Escape"]:
        key = f"Shift+Digit{key}" if key.isdigit() else key
        perform(pressed, ("key", key))
        assert hands.hands.difference() == []
    for action in (("press", "#tree g.more", 0.9), ("wheel", "#tree", -240), ("key", "f")):
        perform(pressed, action)
        assert hands.hands.difference() == []
    assert pressed.locator(".tok:is(.ahead, .coming)").count() == 0
    hands.close()


@pytest.mark.parametrize(
    ("kinds", "title"),
    [
        (["Header", "PrefillDone", "StepDone", "Finished"], "in one pass"),
        (["Header", "PrefillDone", "Finished"], "No steps."),
        (["Header", "Failed"], ""),
    ],
)
def test_every_line_of_a_run_is_drawn_when_it_arrives(browser, file, kinds, title):
    """Not only with the next step: a run may end without steps."""
    hands = OfflineHands(browser, file, (1440, 900))
    pressed = hands.hands.pressed
    records = {type(record).__name__: record for record in reversed([*presets.opening().trace().records()])}
    records |= {"Header": records["dict"], "Failed": {"event": "Failed", "sentence": "The run stopped: too warm."}}
    run, words = RecordedRun(live=True), "() => frames2().then(frames2).then(() => viewOf().page.root.innerText)"
    for place, kind in enumerate(kinds):
        start = len(run)
        run.append([records[kind]])
        pressed.evaluate("lines => viewOf().store.feed(lines)", run.segment(start))
        pressed.wait_for_function("length => viewOf().store.lines.length === length", arg=place + 1)
        shown = pressed.evaluate(words)
        pressed.evaluate("viewOf().redraw()")
        assert pressed.evaluate(words) == shown, kind
    expect(pressed.locator("#sentence h2")).to_contain_text(title)
    assert hands.errors == []
    hands.close()


def test_typed_draft_looks_the_same_after_other_steps_and_on_a_fresh_page(browser, file):
    hands = OfflineHands(browser, file, (1440, 900))
    pressed = hands.hands.pressed
    # typed, answered, another step, back, whole branches, in the middle of playing, at the end
    actions = [
        ("type", "The cat 😀 <b>"),
        *(("key", key) for key in ["Enter", "ArrowRight", "ArrowLeft", "w", "Shift+Digit4", "Escape"]),
    ]
    for action in [("key", "b"), *actions]:
        perform(pressed, action)
        assert hands.hands.difference() == [], action
    expect(pressed.locator("#tree .node.yours")).to_have_count(4)
    assert hands.errors == []
    hands.close()


def test_pointer_that_rests_on_the_text_previews_no_step_when_the_text_scrolls(browser, file):
    page = new_page(browser, viewport={"width": 390, "height": 844})
    page.goto(file.as_uri())
    page.locator("#tree g.node").first.wait_for()
    box = page.locator("#text").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 160, box["y"] + 45)
    for key in ("Shift", "Home", *["ArrowRight"] * 12, "End"):  # "Shift": the pointer's own move does preview a step
        page.keyboard.press(key)
        page.evaluate("async () => { for (let n = 0; n < 12; n += 1) await new Promise(requestAnimationFrame); }")
        assert page.locator("#explorer").evaluate("e => e.dataset.step === e.dataset.pinned") or key == "Shift", key
    page.close()


def test_run_started_in_the_middle_of_another_looks_like_that_run_on_a_fresh_page(browser, address):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(QUICK)
    pages = [new_page(context) for _ in range(2)]
    for page in pages:
        opened(page, address)
    pressed, fresh = pages
    hands = Hands(pressed, fresh)
    place = pressed.locator(".way input").bounding_box()
    assert place is not None
    middle = place["y"] + place["height"] / 2
    pressed.mouse.click(place["x"] + 0.985 * place["width"], middle)  # in Keep, where tokens fly into the text
    expect(pressed.locator(".flyer").first).to_be_attached()
    start(pressed, "One day, a small dog", 40)
    finished(pressed)
    expect(pressed.locator(".verdict")).to_have_text(re.compile("one by one|cleanly"))  # its speed arrives last
    assert pressed.locator(".flyer").count() == 0

    def same() -> None:
        fresh.evaluate("lines => viewOf().store.feed(lines)", pressed.evaluate("linesOf()"))
        fresh.wait_for_function("viewOf().store.complete && viewOf().store.finished")
        assert hands.difference() == []

    same()
    for actions in (["Space", "ArrowRight", "w"], ["Shift+Digit4", "t", "ArrowDown"]):
        for key in actions:
            perform(pressed, ("key", key))
        same()
    context.close()
