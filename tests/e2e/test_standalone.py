"""A trace as one HTML file, opened from the disk in a real browser."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import d2sd
from app import presets
from app.runs.share import class_page
from app.session import History
from d2sd.__main__ import main
from d2sd.figures.viewer import standalone_page
from d2sd.trace.run import RecordedRun
from tests.chromium import new_page

pytestmark = pytest.mark.e2e

OPENING = Path(d2sd.__file__).parent.parent / "assets" / "traces" / "opening.jsonl.gz"
BREAKOUT = "</script><script>window.pwned=1</script><!--<script>--><img src=x onerror='window.pwned=1'>\u2028\u202e\x07"


@pytest.fixture(scope="module")
def opening(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "opening.html"
    assert main(["trace", "to-html", str(OPENING), "-o", str(path)]) == 0
    return path


@pytest.fixture
def show(browser):
    """Opens a file. There must be no errors, no console messages, and no requests except for the file itself."""
    contexts, faults = [], []

    def open_file(path: Path, **options) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
        contexts.append(context)
        page = new_page(context)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text))
        page.on("request", lambda request: None if request.url == path.as_uri() else faults.append(request.url))
        page.goto(path.as_uri())
        expect(page.locator("#tree g.node").first).to_be_visible()
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert faults == []


def view(page: Page):
    return page.locator("#explorer[data-run]")


def test_standalone_run_is_drawn_and_explored_offline(show, opening):
    page = show(opening)
    trace = d2sd.load_trace(OPENING)
    steps = len(trace.steps)
    expect(page).to_have_title(f"opening.jsonl.gz: d2sd, {steps} steps")
    expect(view(page)).to_have_attribute("data-steps", f"{steps}")
    assert "".join(page.locator("#text .tok").all_text_contents()) == trace.finished.text
    expect(page.locator("#follow")).to_contain_text(f"of {steps}")
    page.locator(".why-open").click()
    expect(page.locator(".pays .sentence")).to_contain_text("times as fast as one by one")
    expect(page.locator(".pays .by-hand .none").first).to_contain_text("ask for them in the app")
    for width, drawer in ((1440, (800, 640)), (390, (0, 390))):
        page.set_viewport_size({"width": width, "height": 900})
        box = page.locator(".explorer.pays").bounding_box()
        assert (box["x"], box["width"]) == drawer
    page.set_viewport_size({"width": 1440, "height": 900})
    page.keyboard.press("Escape")
    page.evaluate("location.hash = 'step=6&node=4'")
    expect(view(page)).to_have_attribute("data-pinned", "5")
    expect(view(page)).to_have_attribute("data-node", "4")
    page.reload()
    expect(view(page)).to_have_attribute("data-pinned", "5")
    page.keyboard.press("Home")
    expect(view(page)).to_have_attribute("data-step", "0")
    page.keyboard.press("ArrowDown")
    expect(view(page)).to_have_attribute("data-node", re.compile(r"\d"))
    page.locator("#tree g.node[data-state='rejected'] .shape").first.click(force=True)
    expect(page.locator("#details")).to_contain_text("the large model wanted")
    page.keyboard.press("Escape")
    page.locator("#strip .places button").nth(3).click()
    expect(page.locator(".redraft-box .card")).to_contain_text("holds the recorded run without its models")
    # it follows the system's colour scheme
    lightness = "(e) => getComputedStyle(e).backgroundColor.match(/[0-9]+/g).map(Number).reduce((a, b) => a + b)"
    assert page.locator("body").evaluate(lightness) > 200
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"() => ({lightness})(document.querySelector('#tree')) < 200")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_standalone_hostile_cut_run_stays_text_and_blocks_other_scripts(show, browser, tmp_path):
    lines = [json.loads(line) for line in gzip.decompress(OPENING.read_bytes()).splitlines()[:9]]
    lines[0].update(prompt=BREAKOUT, method=BREAKOUT, run=BREAKOUT)
    lines[2]["anchor_text"] = BREAKOUT
    for node in lines[2]["nodes"]:
        node["text"] = BREAKOUT
    for token in lines[2]["committed"]:
        token["text"] = BREAKOUT
    path = tmp_path / "hostile.html"
    path.write_text(standalone_page(RecordedRun.of(lines), BREAKOUT, 5, "bonus"), encoding="utf-8")
    page = show(path)
    expect(page.locator(".notice")).to_have_text("The recording ends here: the run was cut off.")
    expect(view(page)).to_have_attribute("data-steps", "7")
    expect(view(page)).to_have_attribute("data-pinned", "5")  # the step at export
    expect(view(page)).to_have_attribute("data-node", "bonus")
    page.get_by_role("button", name="Show the whole prompt").click()
    expect(page.locator("#text .prompt")).to_contain_text("</script><script>window.pwned=1</script>")
    expect(page.locator("h1")).to_contain_text("</script><script>")
    page.keyboard.press("Home")
    expect(page.locator("#text .tok.shown").first).to_contain_text("<img src=x")
    assert page.evaluate("window.pwned") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    added = "</main><script>window.pwned=1</script><img src='https://example.org/x.png'>"
    path.write_text(path.read_text(encoding="utf-8").replace("</main>", added, 1), encoding="utf-8")
    page = new_page(browser)
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(path.as_uri())
    expect(page.locator("#tree g.node").first).to_be_visible()
    assert page.evaluate("window.pwned") is None
    assert len([r for r in refused if "Content Security Policy" in r]) == 2
    page.close()


def test_class_file_has_runs_quiz_and_tour_offline(show, tmp_path):
    history = History()
    lines = presets.opening().lines()
    for number in range(2):
        head = {**json.loads(lines[0]), "run": f"{number}" * 32, "prompt": BREAKOUT}
        history.keep(RecordedRun.read("\n".join([json.dumps(head), *lines[1:]]).encode()), "Explore")
    path = tmp_path / "class.html"
    path.write_text(class_page(history.runs, history.runs[0].run.key, 3, title=BREAKOUT), "utf-8")
    page = show(path)
    expect(page.locator("h1")).to_contain_text("</script><script>window.pwned=1</script>")
    assert page.title().startswith("</script><script>")
    expect(view(page)).to_have_attribute("data-run", "0" * 32)
    page.evaluate("location.hash = 'run=2'")
    expect(view(page)).to_have_attribute("data-run", "1" * 32)
    expect(view(page)).to_have_attribute("data-pinned", "3")
    page.evaluate("location.hash = 'run=2&step=5&node=7&stop=5'")  # links of older files have ``stop``
    current = page.locator("#tour .rail [aria-current=step]")
    expect(current).to_have_text("4 Prepare")
    expect(page.locator("#explorer")).to_be_hidden()
    page.locator("#learn-next").click()
    page.wait_for_function("location.hash.includes('chapter=5')")
    page.reload()
    expect(current).to_have_text("5 Merge")
    expect(page.locator("#tour .whose")).to_contain_text("step 5")
    expect(page.locator("#tour .rail button")).to_have_count(9)
    quiz = page.locator("#runs button", has_text="Quiz")
    for _ in range(2):
        quiz.click()
        expect(page.locator("#explorer .quiz .said")).to_contain_text(
            "Which token of the first draft is the first wrong one?"
        )
        page.get_by_role("button", name="End the quiz").click()
        expect(quiz).to_have_attribute("aria-pressed", "false")
    quiz.click()
    expect(view(page)).to_have_attribute("data-pinned", "4")
    page.locator("#runs button", has_text="Be the drafter").click()
    expect(quiz).to_have_attribute("aria-pressed", "false")
    asked = page.locator("#explorer .typed")
    expect(asked.locator("input")).to_be_focused()
    words = "".join(c.text for c in presets.opening().trace().steps[4].committed)
    expect(page.locator("main")).not_to_contain_text(words, use_inner_text=True)
    page.keyboard.type(words.strip())
    page.keyboard.press("Enter")
    expect(asked.locator(".source")).to_contain_text("Compared with the recorded text")
    expect(asked.locator("li.right")).to_have_count(len(presets.opening().trace().steps[4].committed))
    page.goto(path.as_uri() + "#run=1&step=3&draft=1")
    page.reload()
    expect(asked.locator("input")).to_be_focused()
    assert page.evaluate("window.pwned") is None
    assert page.locator("img").count() == 0
