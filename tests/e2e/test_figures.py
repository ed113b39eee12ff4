"""One quantity has one value: the figures of the bundled run, read in every place of the page where they stand, and computed in Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app import presets
from app.runs.share import class_page
from app.session import History
from d2sd.costs.machines import H200
from d2sd.costs.runs import recording_machine
from d2sd.trace.run import RecordedRun
from tests.chromium import new_page
from tests.e2e.driving import PATIENCE, open_tab

pytestmark = pytest.mark.e2e
STAGES = {"Draft": "first_draft", "Re-draft": "second_draft", "Verify": "verify"}


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """A file with the bundled run, its view and its chapters of Learn."""
    history = History()
    history.keep(RecordedRun.read("\n".join(presets.opening().lines()).encode()), "Explore")
    path: Path = tmp_path_factory.mktemp("figures") / "class.html"
    path.write_text(class_page(history.runs, history.runs[0].run.key, presets.opening().instructive), "utf-8")
    page = new_page(browser, viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    page.goto(path.as_uri())
    page.locator("#tree g.node").first.wait_for()
    yield page
    page.close()


@pytest.fixture(scope="module")
def python():
    """The same figures, computed in Python: seconds of the step and of its stages, its pass, tokens, steps, α and speed."""
    run = presets.opening()
    trace, plain, unwatched = run.trace(), run.baseline.tokens_per_second, run.baseline.unwatched
    totals, step = trace.totals, trace.steps[run.instructive]
    tokens = totals.tokens - len(trace.prefill.committed)
    undrawn = tokens / unwatched / sum(sum(vars_of(s.seconds).values()) for s in trace.steps)
    stages = {name: undrawn * seconds for name, seconds in vars_of(step.seconds).items()}
    machine = recording_machine(trace, plain, unwatched)
    assert machine is not None
    return {
        "step": sum(stages.values()),
        **stages,
        "one by one": len(step.committed) / plain,
        "pass": stages["verify"] * plain,
        "plain": plain,
        "tokens": tokens,
        "steps": len(trace.steps),
        "α": totals.mean_acceptance_length,
        "speed": unwatched / plain,
    }


def vars_of(seconds) -> dict[str, float]:
    return {name: getattr(seconds, name) for name in ("first_draft", "second_draft", "tree", "verify", "commit")}


def read(words: str, pattern: str) -> float:
    found = re.search(pattern, words)
    assert found, f"{pattern} in {words!r}"
    return float(found[1])


def milliseconds(seconds: float) -> str:
    ms = 1000 * seconds
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 10 else f"{ms:.2f} ms"


def words_of(page: Page, selector: str) -> str:
    return page.locator(selector).first.inner_text()


def test_times_of_a_step_are_equal_in_all_places(page: Page, python):
    page.evaluate("location.hash = 'run=1'")
    whole = milliseconds(python["step"])
    assert words_of(page, "#clock .value") == f"{whole}, quicker"
    assert page.locator("#clock .value").nth(1).inner_text() == milliseconds(python["one by one"])
    page.locator("#open-facts").click()
    assert f"· {whole}" in words_of(page, "#details .title")
    for name in STAGES.values():
        assert words_of(page, f"#details tr[data-stage={name}] td.value") == milliseconds(python[name])
    page.locator("#open-facts").click()
    for digit, name in ((3, "second_draft"), (5, "verify")):
        page.keyboard.press(f"Shift+Digit{digit}")
        expect(page.locator("#sentence .parts")).to_have_text(
            re.compile(rf"^(In one batch: )?{milliseconds(python[name])}$")
        )
    page.keyboard.press("Escape")
    box = page.locator("#timeline").bounding_box()
    assert box is not None
    at = presets.opening().instructive + 0.5
    page.mouse.move(box["x"] + box["width"] * at / python["steps"], box["y"] + 20)
    expect(page.locator(".tip")).to_contain_text(whole)
    page.mouse.move(3, 3)


def test_figures_of_a_run_are_equal_in_explore_and_python(page: Page, python):
    gist = words_of(page, ".gist")
    assert f"{python['tokens']} tokens in {python['steps']} passes" in gist
    assert read(gist, r"([\d.]+) times as fast") == round(python["speed"], 1)
    page.locator(".why-open").click()
    pays = page.locator(".explorer.pays")
    said = pays.locator(".sentence").text_content() or ""
    assert read(said, r"brings ([\d.]+) tokens") == round(python["α"], 1)
    assert read(said, r"([\d.]+) times as fast") == round(python["speed"], 1)
    assert read(said, r"costs ([\d.]+) passes") == round(python["α"] / python["speed"], 1)
    pays.locator("summary", has_text="Totals").click()
    assert read(words_of(page, ".pays .totals"), r"α\s*([\d.]+)") == round(python["α"], 2)
    rows = pays.locator(".of-step .bar-row")
    assert read(rows.nth(1).locator(".value b").text_content() or "", r"([\d.]+)") == round(
        python["step"] * python["plain"], 1
    )
    verified = rows.nth(1).locator(".parts .verify").text_content() or ""
    assert read(verified, r"([\d.]+)") == round(python["pass"], 1)
    assert read(pays.locator("svg .value.here").text_content() or "", r"([\d.]+)") == round(python["pass"], 1)
    cost = H200
    nodes = pays.locator(".handle").get_attribute("aria-valuenow")
    there = (cost.verify.seconds(int(nodes or 0)) + cost.other) / cost.plain()
    for words in (
        pays.locator("svg .value.there").text_content(),
        rows.nth(2).locator(".parts .verify").text_content(),
    ):
        assert read(words or "", r"([\d.]+)") == round(there, 1)
    page.keyboard.press("Escape")
    expect(pays).to_be_hidden()


def test_figures_in_learn_equal_those_of_explore(page: Page, python):
    def told(chapter: str) -> str:
        page.locator(f"#tour .rail button[title='{chapter}']").click()
        page.locator("#tour details:not([open]) summary").evaluate_all("all => all.forEach((e) => e.click())")
        return words_of(page, "#tour .words")

    page.locator("#runs button", has_text="Learn").click()
    page.locator("#tour [data-ready=yes] .body p").first.wait_for()
    for chapter, stage in (("Guess ahead", "first_draft"), ("Prepare", "second_draft"), ("One pass", "verify")):
        assert f"({milliseconds(python[stage])})" in told(chapter)
    buys = told("What it buys")
    assert f"took {milliseconds(python['step'])}. " in buys
    assert f"one by one takes {milliseconds(python['one by one'])}" in buys
    assert read(buys, r"a step brings ([\d.]+) tokens") == round(python["α"], 1)
    assert read(buys, r": ([\d.]+) times as fast as one by one") == round(python["speed"], 1)
    cost = read(buys, r"tokens took ([\d.]+) times as long")
    assert cost == read(told("When it pays"), r"arithmetic: .*? cost ([\d.]+) passes") == round(python["pass"], 1)
    page.locator("#runs button", has_text="Explore").click()


def test_race_counts_tokens_as_explore_does(module_page: Page, python):
    """The token of the pass over the prompt belongs to no step."""
    open_tab(module_page, "Race")
    module_page.locator("#race .time").evaluate("(e) => { e.value = e.max; e.dispatchEvent(new Event('input')); }")
    for track in module_page.locator("#race li.track").all():
        expect(track).to_have_attribute("data-tokens", str(python["tokens"]), timeout=PATIENCE)
