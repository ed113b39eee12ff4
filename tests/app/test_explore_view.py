"""The Explore view in a real browser: streams are drawn once, and steps, nodes and ranges can be chosen in every view."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import gradio as gr
import pytest
from msgspec import structs

from app.explore.controls import ExplorerView
from d2sd.trace.events import (
    Alternative,
    Baseline,
    Choice,
    Committed,
    Draft,
    Finished,
    Node,
    PrefillDone,
    Record,
    StageSeconds,
    StepDone,
)
from d2sd.trace.run import RecordedRun
from d2sd.tree.block import DrafterName
from tests.e2e.driving import alone

RIGHT, BETTER, BONUS, WRONG, LATE = " the", " cat", " sat", " dog", " ran"
HEADER = {"event": "Header", "schema": 1, "method": "d2sd", "config": {"block_size": 4}, "prompt": "Once"}


def draft(drafter: DrafterName, prefix: int, texts: tuple[str, ...], confidence: tuple[float, ...]) -> Draft:
    tops = ((Alternative(90, t, c), Alternative(91, " other", 0.01)) for t, c in zip(texts, confidence, strict=True))
    return Draft(drafter, prefix, (90,) * len(texts), texts, confidence, tuple(tops))


def step(number: int) -> StepDone:
    """A block of 4: the first draft gets one token right, the re-draft from 1 adds one, the target adds the bonus."""
    rows: list[tuple[Any, ...]] = [
        # parent, depth, text, candidates, proposer, state
        (-1, 0, ":", (0, 1), "target", "root"),
        (0, 1, RIGHT, (0, 1), "first", "accepted"),
        (1, 2, WRONG, (0,), "first", "rejected"),
        (2, 3, LATE, (0,), "first", "unreached"),
        (1, 2, BETTER, (1,), "second", "accepted"),
        (4, 3, LATE, (1,), "second", "rejected"),
    ]
    known = (0.5, 0.25, 3)  # of the nodes below the anchor: both probabilities, and the rank
    return StepDone(
        step=number,
        anchor=5,
        anchor_text=":",
        anchor_position=3 * number + 1,
        first_draft=draft("first", 0, (RIGHT, WRONG, LATE), (0.9, 0.4, 0.3)),
        boundary_posterior=(0.1, 0.54, 0.252),
        full_acceptance=0.108,
        selected_prefixes=(1,),
        branches=(draft("second", 1, (BETTER, LATE), (0.8, 0.6)),),
        nodes=tuple(Node(n, *row[:2], 90, *row[2:], *(known if n else (None,) * 3)) for n, row in enumerate(rows)),
        choices=tuple(Choice(node, 91, text, 0.81) for node, text in ((0, RIGHT), (1, BETTER), (4, BONUS))),
        accepted=(1, 4),
        committed=(
            Committed(90, RIGHT, "first", 1),
            Committed(90, BETTER, "second", 4),
            Committed(90, BONUS, "target", None),
        ),
        actual_boundary=1,
        seconds=StageSeconds(0.01, 0.01, 0.001, 0.03, 0.002),
        elapsed=0.06 * (number + 1),
    )


def outcome_step(number: int, kind: str) -> StepDone:
    """A step whose boundary was repaired, found for nothing, or missed."""
    made = step(number)
    if kind == "repaired":
        return made
    first, _, last = made.committed
    states = ("rejected", "unreached")
    return structs.replace(
        made,
        selected_prefixes=(0,) if kind == "missed" else made.selected_prefixes,
        nodes=(*made.nodes[:4], *map(lambda n, s: structs.replace(n, state=s), made.nodes[4:], states)),
        choices=made.choices[:2],
        accepted=(1,),
        committed=(first, structs.replace(last, text=BETTER)),
    )


def records(run: str, steps: Sequence[StepDone] = tuple(map(step, range(6)))) -> list[Record]:
    """A whole run; older ones were not timed again."""
    speeds = Baseline(25.0, 62.5) if run.startswith("plain") else Baseline(25.0)
    end = Finished("stopped", "", (), len(steps), 1.0, 0.1)
    return [HEADER | {"run": run}, PrefillDone((1,), ("Once",), 0.1), *steps, end, speeds]


def sent(run: Iterable[Record]) -> str:
    """A run as the server sends it: before each step its outcome."""
    return "\n".join(RecordedRun.of(run).lines(outcomes=True))


OUTCOMES = ["repaired", "found", "missed", "found", "repaired", "missed"]


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """The view alone, with buttons that stream traces into it."""
    runs = itertools.count(1)

    def grow() -> Iterator[str]:
        plain = records(f"plain-{next(runs)}")
        for end in (3, 5, len(plain)):
            yield sent(plain[:end])

    def outcomes() -> str:
        return sent(records("outcomes", list(itertools.starmap(outcome_step, enumerate(OUTCOMES)))))

    run = RecordedRun()
    run.append(records("lossy"))

    def lossy() -> Iterator[str]:
        for start, end in ((0, 3), (5, 7), (7, len(run))):
            part = RecordedRun(run.key, _entries=run._entries[:end])
            yield part.segment(start)

    def again(data: gr.EventData) -> str:
        assert data._data["key"] == run.key
        return run.segment(data._data["start"])

    with gr.Blocks() as demo:
        view = ExplorerView()
        view.missed(again, None, view, show_progress="hidden")
        for name, feed in {"grow": grow, "outcomes": outcomes, "lossy": lossy}.items():
            gr.Button(name, elem_id=name).click(feed, None, view, show_progress="hidden")
    with alone(browser, demo, viewport={"width": 1100, "height": 900}) as page:
        page.wait_for_selector("#explorer .empty")
        yield page


@pytest.fixture
def plain(page: Any) -> Any:
    """The page with a fresh plain trace, nothing pinned, pointer out of the way."""
    page.mouse.move(1, 1)
    page.grown = getattr(page, "grown", 0) + 1
    page.click("#grow")
    page.wait_for_selector(f"#explorer [data-run=plain-{page.grown}][data-steps='6']", state="attached")
    # the totals know the end of the trace: nothing is still on its way
    page.wait_for_function("document.querySelector('#numbers [data-stat=speedup] .value').textContent !== '—'")
    page.evaluate("document.activeElement.blur()")
    for _ in range(2):
        page.keyboard.press("Escape")
    page.wait_for_selector("#explorer [data-pinned='']", state="attached")
    return page


def root(page: Any, name: str) -> str:
    return page.evaluate("name => document.querySelector('#explorer [data-steps]').dataset[name]", name)


def wait_root(page: Any, name: str, value: str) -> None:
    page.wait_for_function(
        "([n, v]) => document.querySelector('#explorer [data-steps]').dataset[n] === v", arg=[name, value]
    )


def test_a_stream_is_drawn_once(plain: Any) -> None:
    assert plain.locator("#text .output").evaluate("e => e.textContent") == " the cat sat" * 6
    assert (plain.locator("#text .tok").count(), plain.locator("#text .tok.second").count()) == (18, 6)
    assert plain.locator("#text .prompt").text_content() == "Once"
    states = plain.locator("#tree g.node").evaluate_all("all => all.map(n => n.dataset.state).sort()")
    assert states == ["accepted", "accepted", "bonus", "rejected", "rejected", "root", "unreached"]
    assert "target: ␣cat" in plain.locator("#tree g.node[data-node='2']").text_content()
    assert plain.locator("#strip [data-verdict=repaired]").text_content() == "● accepted 1 · repaired, +1"
    assert plain.locator("#numbers [data-stat=speedup] .value").text_content() == "2.50×"
    found = """words => window.find(words, true)
        && [getSelection().anchorNode, getSelection().focusNode].map((n) => n.parentElement.closest('#text .tok')?.textContent)"""
    assert plain.evaluate(found, "cat sat") == [" cat", " sat"]  # the browser's own search, across tokens


def test_a_token_a_bar_and_a_node_are_chosen_in_every_view(plain: Any) -> None:
    plain.locator(".tok[data-step='2']").first.click()
    wait_root(plain, "pinned", "2")
    assert root(plain, "node") == "1"  # the token's own node
    plain.locator(".tok[data-step='2']").last.click()
    wait_root(plain, "node", "bonus")
    assert plain.get_attribute("#timeline", "data-pinned") == "2"
    assert "Step 3" in plain.locator("#sentence").text_content()
    assert plain.locator("#text .tok.pinned").count() == 3
    plain.mouse.move(1, 1)
    plain.locator("#follow").click()
    wait_root(plain, "pinned", "")
    box = plain.locator("#timeline").bounding_box()
    plain.mouse.move(box["x"] + 5, box["y"] + 20)
    plain.mouse.down()
    plain.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 20, steps=4)
    plain.mouse.up()
    wait_root(plain, "pinned", "4")
    plain.locator("#tree g.node[data-node='2']").click()
    wait_root(plain, "node", "2")
    assert "Rejected: the target wanted “␣cat”" in plain.locator("#details").text_content()
    assert "Rejected" in plain.locator(".tip").text_content()
    assert plain.locator("#tree g.node.selected .ring").count() == plain.locator("#tree .ring").count() == 1
    plain.mouse.move(5, 5)
    plain.wait_for_selector(".tip", state="hidden")
    plain.locator(".tok[data-step='1']").first.hover()  # a node belongs to the step that it was picked in
    wait_root(plain, "step", "1")
    assert plain.locator("#tree .ring").count() == 0
    plain.evaluate("""() => {
        const view = document.querySelector('#explorer [data-steps]');
        document.addEventListener('explorer:selected', (e) => { window.__selected = e.detail; });
        view.dispatchEvent(new CustomEvent('explorer:select', {detail: {step: 3, node: 4}}));
    }""")
    wait_root(plain, "node", "4")
    assert plain.evaluate("window.__selected") == {"run": f"plain-{plain.grown}", "step": 3, "node": 4}


def test_keys_walk_play_and_fit(plain: Any) -> None:
    press = plain.keyboard.press
    scale = plain.locator("#tree g.world")
    press("Home")
    wait_root(plain, "step", "0")
    before = scale.get_attribute("transform")
    plain.locator("#tree").hover()
    plain.mouse.wheel(0, -200)
    plain.wait_for_function("t => document.querySelector('#tree g.world').getAttribute('transform') !== t", arg=before)
    zoomed = scale.get_attribute("transform")
    press("ArrowRight")
    wait_root(plain, "step", "1")
    assert scale.get_attribute("transform") == zoomed
    press("f")
    assert scale.get_attribute("transform") == before
    press("ArrowDown")
    wait_root(plain, "node", "4")
    press("Shift+ArrowRight")
    wait_root(plain, "node", "bonus")
    press("Escape")
    wait_root(plain, "node", "")
    press("End")
    wait_root(plain, "step", "5")
    drawn = """() => ['#tree .world', '#strip svg'].map((part) => document.querySelector(part).outerHTML.replaceAll(' style=""', ""))"""
    before = plain.evaluate(drawn)
    press("?")
    plain.wait_for_selector("dialog.help[open]")
    press("Escape")
    press("Space")  # at once: the button of the dialog still has the focus
    plain.wait_for_selector("#follow[data-state=playing]")
    plain.wait_for_selector("#explorer .explorer[data-stage=verify]", state="attached")
    untold = plain.locator("#tree g.node[data-state=accepted].yet")  # until the target has read them
    assert untold.count() == 2
    said = plain.locator("#explorer .spoken").text_content()
    assert said.startswith("verify: 2 drafts, 6 tokens, are one tree of 6 nodes.")
    press("Space")
    plain.wait_for_selector("#follow[data-state=pinned]")
    press("Shift+5")
    assert plain.evaluate(drawn) == before
    press("Home")
    wait_root(plain, "step", "0")


def test_steps_of_a_kind_are_found_and_a_range_has_totals_of_its_own(page: Any) -> None:
    press = page.keyboard.press
    page.click("#outcomes")
    page.wait_for_selector("#explorer [data-run=outcomes][data-steps='6']", state="attached")
    page.evaluate("document.activeElement.blur()")
    press("Home")
    page.locator("[data-outcome=found]").click()
    assert page.locator("#step-filter").input_value() == "found"
    wait_root(page, "pinned", "1")  # what a link copied now would share
    press("n")
    wait_root(page, "step", "3")
    page.wait_for_function("document.querySelector('.finder .count').textContent === '2 of 2'")
    press("p")
    wait_root(page, "step", "1")
    press("[")
    press("End")
    wait_root(page, "step", "5")
    press("ArrowLeft")
    wait_root(page, "step", "4")
    press("]")
    assert page.locator(".range").text_content().startswith("Steps 2 to 5 9 tokens, 2.25 per step")
    page.get_by_role("button", name="Zoom to them").click()
    page.get_by_role("button", name="Clear").click()
    assert page.locator(".range").is_hidden()


def test_the_share_menu_opens_closes_and_saves(plain: Any) -> None:
    share, menu = plain.locator(".sharing .share"), plain.locator(".sharing .menu")
    for leave in (plain.locator("#sentence").click, plain.locator("#tree").focus):
        share.click()
        leave()
        assert menu.is_hidden()
        assert share.get_attribute("aria-expanded") == "false"
    share.click()
    plain.keyboard.press("Escape")
    assert menu.is_hidden()
    assert share.evaluate("e => e === document.activeElement")
    # Safari gives a clicked button no focus: what had it loses it to nothing
    lost = "e => e.dispatchEvent(new FocusEvent('focusout', {bubbles: true, relatedTarget: null}))"
    share.click()
    with plain.expect_download() as started:
        menu.get_by_role("menuitem").first.evaluate(lost)
        assert menu.is_visible()
        menu.get_by_role("menuitem", name="JSONL").dispatch_event("click")
    assert started.value.suggested_filename.endswith(".jsonl")
    assert menu.is_hidden()


def test_updates_that_the_page_never_saw_are_asked_for(page: Any) -> None:
    """The last one here: its answers may come late."""
    page.click("#lossy")
    page.wait_for_selector("#explorer [data-run=lossy][data-steps='6']", state="attached")
    assert page.locator("#text .output").evaluate("e => e.textContent") == " the cat sat" * 6
    assert page.locator("#numbers [data-stat=speedup] .value").text_content() == "2.00×"
