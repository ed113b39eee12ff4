"""Runs in one HTML file, opened from the disk in a real browser. Each quantity has one value: the file states the same figures in all
places, and they equal those that Python computes."""

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
STAGES = ["first_draft", "second_draft", "verify"]


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


@pytest.fixture(scope="module")
def recorded(browser, class_file: Path):
    page = new_page(browser, viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    page.goto(class_file.as_uri())
    page.locator("#tree g.node").first.wait_for()
    yield page
    page.close()


@pytest.fixture(scope="module")
def python():
    """The figures of the recorded run, computed in Python: seconds of the step and of its stages, its pass, tokens, steps, α and speed."""
    run = presets.opening()
    trace, plain, unwatched = run.trace(), run.baseline.tokens_per_second, run.baseline.unwatched
    totals, step = trace.totals, trace.steps[run.instructive]
    tokens = totals.tokens - len(trace.prefill.committed)
    undrawn = tokens / unwatched / sum(s.seconds.total for s in trace.steps)
    stages = {name: undrawn * getattr(step.seconds, name) for name in STAGES}
    return {
        "step": undrawn * step.seconds.total,
        **stages,
        "one by one": len(step.committed) / plain,
        "pass": stages["verify"] * plain,
        "plain": plain,
        "tokens": tokens,
        "steps": len(trace.steps),
        "α": totals.mean_acceptance_length,
        "speed": unwatched / plain,
    }


def read(words: str, pattern: str) -> float:
    match = re.search(pattern, words)
    assert match, f"{pattern} in {words!r}"
    return float(match[1])


def milliseconds(seconds: float) -> str:
    ms = 1000 * seconds
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 10 else f"{ms:.2f} ms"


def words_of(page: Page, selector: str) -> str:
    return page.locator(selector).first.inner_text()


def test_standalone_run_is_drawn_and_explored_offline(show, opening):
    page = show(opening)
    trace = d2sd.load_trace(OPENING)
    expect(page).to_have_title(f"opening.jsonl.gz: d2sd, {len(trace.steps)} steps")
    assert "".join(page.locator("#text .tok").all_text_contents()) == trace.finished.text
    page.locator(".why-open").click()
    expect(page.locator(".pays .by-hand .none").first).to_contain_text("ask for them in the app")
    for width, drawer in ((1440, (800, 640)), (390, (0, 390))):
        page.set_viewport_size({"width": width, "height": 900})
        box = page.locator(".explorer.pays").bounding_box()
        assert (box["x"], box["width"]) == drawer
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1440, "height": 900})
    page.keyboard.press("Escape")
    page.evaluate("location.hash = 'step=6&node=4'")
    expect(view(page)).to_have_attribute("data-pinned", "5")
    expect(view(page)).to_have_attribute("data-node", "4")
    page.reload()
    expect(view(page)).to_have_attribute("data-pinned", "5")
    page.keyboard.press("Home")
    expect(view(page)).to_have_attribute("data-step", "0")
    page.locator("#strip .places button").nth(3).click()
    expect(page.locator(".redraft-box .card")).to_contain_text("holds the recorded run without its models")
    # it follows the system's colour scheme
    lightness = "(e) => getComputedStyle(e).backgroundColor.match(/[0-9]+/g).map(Number).reduce((a, b) => a + b)"
    assert page.locator("body").evaluate(lightness) > 200
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"() => ({lightness})(document.querySelector('#tree')) < 200")


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
    page.keyboard.press("Home")
    expect(page.locator("#text .tok.shown").first).to_contain_text("<img src=x")
    assert page.evaluate("window.pwned") is None
    assert page.locator("img").count() == 0
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
    quiz = page.locator("#runs button", has_text="Quiz")
    quiz.click()
    page.get_by_role("button", name="End the quiz").click()
    expect(quiz).to_have_attribute("aria-pressed", "false")
    quiz.click()
    expect(view(page)).to_have_attribute("data-pinned", "4")
    page.locator("#runs button", has_text="Be the drafter").click()
    expect(quiz).to_have_attribute("aria-pressed", "false")
    field = page.locator("#text .typing")
    expect(field).to_be_focused()
    page.keyboard.type("x")
    page.keyboard.press("Enter")
    expect(page.locator("#explorer .typed .said")).to_contain_text("Compared with the recorded text")
    page.goto(path.as_uri() + "#run=1&step=3&draft=1")
    page.reload()
    expect(field).to_be_focused()
    assert page.evaluate("window.pwned") is None
    assert page.locator("img").count() == 0


def test_times_of_a_step_are_equal_in_all_places(recorded: Page, python):
    recorded.evaluate("location.hash = 'run=1'")
    whole = milliseconds(python["step"])
    assert words_of(recorded, "#clock .value") == f"{whole}, quicker"
    assert recorded.locator("#clock .value").nth(1).inner_text() == milliseconds(python["one by one"])
    recorded.locator("#open-facts").click()
    assert f"· {whole}" in words_of(recorded, "#details .title")
    for name in STAGES:
        assert words_of(recorded, f"#details tr[data-stage={name}] td.value") == milliseconds(python[name])
    recorded.locator("#open-facts").click()
    said = {1: ("One draft pass", "first_draft"), 3: ("Four drafts at once", "second_draft"), 5: ("One pass", "verify")}
    for digit, (what, name) in said.items():
        recorded.keyboard.press(f"Shift+Digit{digit}")
        expect(recorded.locator("#sentence .parts")).to_have_text(f"{what}, {milliseconds(python[name])}.")
    recorded.keyboard.press("Escape")
    box = recorded.locator("#timeline").bounding_box()
    assert box is not None
    place = (presets.opening().instructive + 0.5) / python["steps"]
    recorded.mouse.move(box["x"] + box["width"] * place, box["y"] + 20)
    expect(recorded.locator(".tip")).to_contain_text(whole)
    recorded.mouse.move(3, 3)


def test_figures_of_a_run_are_equal_in_explore_and_python(recorded: Page, python):
    gist = words_of(recorded, ".gist")
    assert f"{python['tokens']} tokens in {python['steps']} passes" in gist
    assert read(words_of(recorded, ".verdict"), r"([\d.]+) times as fast") == round(python["speed"], 1)
    recorded.locator(".why-open").click()
    pays = recorded.locator(".explorer.pays")
    said = pays.locator(".sentence").text_content() or ""
    assert read(said, r"brings ([\d.]+) tokens") == round(python["α"], 1)
    assert read(said, r"([\d.]+) times as fast") == round(python["speed"], 1)
    assert read(said, r"costs ([\d.]+) one-token passes") == round(python["α"] / python["speed"], 1)
    pays.locator("summary", has_text="Totals").click()
    assert read(words_of(recorded, ".pays .totals"), r"α\s*([\d.]+)") == round(python["α"], 2)
    rows = pays.locator(".of-step .bar-row")
    assert read(rows.nth(1).locator(".value b").text_content() or "", r"([\d.]+)") == round(
        python["step"] * python["plain"], 1
    )
    verified = rows.nth(1).locator(".parts .verify").text_content() or ""
    assert read(verified, r"([\d.]+)") == round(python["pass"], 1)
    assert read(pays.locator("svg .value.here").text_content() or "", r"([\d.]+)") == round(python["pass"], 1)
    recorded.keyboard.press("Escape")


def test_figures_in_learn_equal_those_of_explore(recorded: Page, python):
    def told(chapter: str) -> str:
        recorded.locator(f"#tour .rail button[title='{chapter}']").click()
        recorded.locator("#tour details:not([open]) summary").evaluate_all("all => all.forEach((e) => e.click())")
        return words_of(recorded, "#tour .words")

    recorded.locator("#runs button", has_text="Learn").click()
    recorded.locator("#tour [data-ready=yes] .body p").first.wait_for()
    for chapter, stage in (("Guess ahead", "first_draft"), ("Prepare", "second_draft"), ("One pass", "verify")):
        assert f"({milliseconds(python[stage])})" in told(chapter)
    buys = told("What it buys")
    assert f"took {milliseconds(python['step'])}. " in buys
    assert f"one by one takes {milliseconds(python['one by one'])}" in buys
    assert read(buys, r"a step writes ([\d.]+) tokens") == round(python["α"], 1)
    assert read(buys, r": ([\d.]+) times as fast as one by one") == round(python["speed"], 1)
    cost = read(told("When it pays"), r"arithmetic: .*? cost ([\d.]+) one-token passes")
    assert cost == round(python["pass"], 1)
    recorded.locator("#runs button", has_text="Explore").click()
