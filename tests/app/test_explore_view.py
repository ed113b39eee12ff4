"""The Explore view in a real browser: what is drawn, what is linked, and that model text stays text."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
import pytest

from app.explore.controls import ExplorerView
from d2sd.trace.run import RecordedRun
from tests.records import record

HOSTILE = [
    "<script>window.__pwned=1</script>",
    "<img src=x onerror='window.__pwned=2;alert(1)'>",
    "${window.__pwned=3}",
    "{{constructor.constructor('window.__pwned=4')()}}",
    "${value}",
    "</style><svg onload=alert(2)>",
    "\u202eright to left עברית\u2066",
    "line\nbreak\n",
    "👩‍👩‍👧 emoji",
    "x" * 10_000,
    "\ud800",
]


def draft(drafter: str, prefix: int, texts: list[str], confidence: list[float]) -> dict[str, Any]:
    top = [
        [{"id": 90, "text": t, "probability": c}, {"id": 91, "text": " other", "probability": 0.01}]
        for t, c in zip(texts, confidence, strict=True)
    ]
    return {
        "drafter": drafter,
        "prefix": prefix,
        "ids": [90] * len(texts),
        "texts": texts,
        "confidence": confidence,
        "alternatives": top,
    }


def step_event(number: int, words: list[str]) -> dict[str, Any]:
    """A block of 4: the first draft gets one token right, the re-draft from 1 adds one, the target adds the bonus."""
    right, better, bonus, wrong, late = words
    rows = [
        # id, parent, depth, text, candidates, proposer, state
        (0, -1, 0, ":", [0, 1], "target", "root"),
        (1, 0, 1, right, [0, 1], "first", "accepted"),
        (2, 1, 2, wrong, [0], "first", "rejected"),
        (3, 2, 3, late, [0], "first", "unreached"),
        (4, 1, 2, better, [1], "second", "accepted"),
        (5, 4, 3, late, [1], "second", "rejected"),
    ]
    nodes = [
        {"id": i, "parent": p, "depth": d, "token": 90, "text": t, "candidates": c, "proposer": who, "state": s}
        | {
            "drafter_probability": 0.5 if i else None,
            "target_probability": 0.25 if i else None,
            "target_rank": 3 if i else None,
        }
        for i, p, d, t, c, who, s in rows
    ]
    return {
        "event": "StepDone",
        "step": number,
        "anchor": 5,
        "anchor_text": ":",
        "anchor_position": 3 * number + 1,
        "first_draft": draft("first", 0, [right, wrong, late], [0.9, 0.4, 0.3]),
        "boundary_posterior": [0.1, 0.54, 0.252],
        "full_acceptance": 0.108,
        "selected_prefixes": [1],
        "branches": [draft("second", 1, [better, late], [0.8, 0.6])],
        "nodes": nodes,
        "choices": [
            {"node": n, "token": 91, "text": t, "probability": 0.81} for n, t in ((0, right), (1, better), (4, bonus))
        ],
        "accepted": [1, 4],
        "committed": [
            {"token": 90, "text": right, "proposer": "first", "node": 1},
            {"token": 90, "text": better, "proposer": "second", "node": 4},
            {"token": 90, "text": bonus, "proposer": "target", "node": None},
        ],
        "actual_boundary": 1,
        "seconds": {"first_draft": 0.01, "second_draft": 0.01, "tree": 0.001, "verify": 0.03, "commit": 0.002},
        "elapsed": 0.06 * (number + 1),
    }


WORDS = [" the", " cat", " sat", " dog", " ran"]


def trace(run: str, steps: list[list[str]], prompt: str = "Once", end: bool = True) -> list[str]:
    events: list[dict[str, Any]] = [
        {"event": "Header", "schema": 1, "run": run, "method": "d2sd", "config": {"block_size": 4}, "prompt": prompt}
    ]
    events.append({"event": "PrefillDone", "prompt_token_ids": [1], "texts": [prompt], "seconds": 0.1})
    events += [step_event(i, words) for i, words in enumerate(steps)]
    if end:
        events.append(
            {
                "event": "Finished",
                "stop_reason": "stopped",
                "text": "",
                "token_ids": [],
                "steps": len(steps),
                "seconds": 1.0,
                "prefill_seconds": 0.1,
            }
        )
        again = {"unwatched": 62.5} if run.startswith("plain") else {}  # older runs were not timed again
        events.append({"event": "Baseline", "tokens_per_second": 25.0, **again})
    return [json.dumps(e) + "\n" for e in events]


def judged(feed: Callable[[], Any]) -> Callable[[], Iterator[str]]:
    """A feed as the server sends it: before each step its outcome."""

    def sent() -> Iterator[str]:
        values = feed()
        for value in [values] if isinstance(values, str) else values:
            yield "\n".join(RecordedRun.of(map(record, value.splitlines())).lines(outcomes=True))

    return sent


def hostile_steps() -> list[list[str]]:
    return [[text] * 5 for text in HOSTILE]


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """The view alone, with buttons that stream traces into it."""
    nasty = trace("nasty", hostile_steps(), prompt=HOSTILE[0])
    runs = itertools.count(1)

    def grow() -> Iterator[str]:
        plain = trace(f"plain-{next(runs)}", [WORDS] * 6)
        for end in (3, 5, len(plain)):
            yield "".join(plain[:end])

    def fail() -> str:
        return (
            "".join(trace("failed", [WORDS], end=False))
            + json.dumps({"event": "Failed", "sentence": "<b>No memory.</b>"})
            + "\n"
        )

    def cut() -> list[str]:
        *lines, last, finished, _ = trace("cut", [WORDS] * 2)
        step = json.loads(last)
        step |= {"committed": step["committed"][:2], "actual_boundary": None}
        return [*lines, json.dumps(step) + "\n", finished.replace("stopped", "max_new_tokens")]

    run, steps = RecordedRun(), RecordedRun()
    run.append(map(record, trace("lossy", [WORDS] * 6)))
    steps.append(map(record, trace("wanted", [WORDS] * 6)))

    def lossy() -> Iterator[str]:
        for start, end in ((0, 3), (5, 7), (7, len(run))):
            part = RecordedRun(run.key, _entries=run._entries[:end])
            yield part.segment(start)

    place = {"step": 2, "node": 4}

    def again(data: gr.EventData) -> str:
        asked = {run.key: run, steps.key: steps}[data._data["key"]]
        return asked.segment(data._data["start"])

    def wanted() -> Iterator[str]:
        yield RecordedRun(steps.key, _entries=steps._entries[:3]).segment(0, wanted=place)
        yield steps.segment(3, wanted=place)

    with gr.Blocks() as demo:
        view = ExplorerView()
        view.missed(again, None, view, show_progress="hidden")
        feeds = {
            "grow": grow,
            "nasty": lambda: "".join(nasty),
            "fail": fail,
        }
        equal = step_event(0, WORDS)
        equal |= {
            "selected_prefixes": [1, 0],
            "branches": [
                draft("second", 1, [" cat", " ran"], [0.8, 0.6]),
                draft("second", 0, [" the", " cat", " ran"], [0.9, 0.8, 0.6]),
            ],
        }
        for node, through in zip(equal["nodes"], ([0, 1, 2], [0, 1, 2], [0], [0], [1, 2], [1, 2]), strict=True):
            node["candidates"] = through
        same = trace("equal", [WORDS])
        feeds |= {
            "outcomes": lambda: "".join(run_of("outcomes", OUTCOMES)),
            "sampled": lambda: "".join(run_of("sampled", ["found"] * 2, config={"temperature": 1, "block_size": 4})),
            "random": lambda: "".join(run_of("random", ["found"] * 2, method="random_prefix")),
            "equal": lambda: "".join([*same[:2], json.dumps(equal) + "\n", *same[3:]]),
        }
        slow = run_of("slow", ["found"] * 2, config={"cost_aware": False})
        feeds["slow"] = lambda: "".join([*slow[:-1], slow[-1].replace("25.0", "80.0")])
        feeds |= {"cut": lambda: "".join(cut()[:-1]), "ended": lambda: "".join(cut())}
        for name, feed in feeds.items():
            gr.Button(name, elem_id=name).click(judged(feed), None, view, show_progress="hidden")
        for name, feed in {"lossy": lossy, "wanted": wanted}.items():
            gr.Button(name, elem_id=name).click(feed, None, view, show_progress="hidden")
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True)
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.set_default_timeout(30_000)
    page.dialogs, page.errors = [], []
    page.on("dialog", lambda d: (page.dialogs.append(d.message), d.dismiss()))
    page.on("pageerror", lambda e: page.errors.append(str(e)))
    page.goto(url)
    page.wait_for_selector("#explorer .empty")
    yield page
    page.close()
    demo.close()


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


def test_the_stream_draws_every_token_once(plain: Any) -> None:
    assert plain.locator("#text .tok").count() == 18
    assert plain.locator("#text .output").evaluate("e => e.textContent") == " the cat sat" * 6
    assert plain.locator("#text .tok.second").count() == 6
    assert plain.locator("#text .prompt").text_content() == "Once"


def test_tree_and_strip_tell_what_happened(plain: Any) -> None:
    states = plain.locator("#tree g.node").evaluate_all("all => all.map(n => n.dataset.state).sort()")
    assert states == ["accepted", "accepted", "bonus", "rejected", "rejected", "root", "unreached"]
    assert (
        "First drafter got 1 right; the re-draft from 1 added 1 more; then the target wrote “ sat”."
        in plain.locator("#sentence").text_content()
    )
    assert plain.locator("#strip [data-verdict=repaired]").text_content() == "● accepted 1 · repaired, +1"
    assert "target: ␣cat" in plain.locator("#tree g.node[data-node='2']").text_content()


def test_numbers(plain: Any) -> None:
    def value(stat: str) -> str:
        return plain.locator(f"#numbers [data-stat={stat}] .value").text_content()

    assert [value(s) for s in ("alpha", "speed", "speedup", "nodes", "repaired", "gain")] == [
        "3.00",
        "50.0",
        "2.50×",
        "6.0",
        "100%",
        "1.00",
    ]
    assert plain.locator("#numbers [data-stat=speedup] .note").text_content() == "undrawn 62.5, plain 25.0"


def test_a_speedup_below_1_says_what_it_is_a_factor_of(plain: Any) -> None:
    speedup = plain.locator("#numbers [data-stat=speedup] .value")
    said = "e => getComputedStyle(e, '::after').content"
    assert "as fast" not in speedup.evaluate(said)
    plain.click("#slow")
    plain.wait_for_selector("#explorer [data-run=slow][data-steps='2']", state="attached")
    plain.wait_for_function("document.querySelector('#numbers [data-stat=speedup] .value').textContent !== '—'")
    assert float(speedup.text_content().rstrip("×")) < 1
    assert "as fast" in speedup.evaluate(said)
    plain.click(".why-open")
    assert "“cost-aware”" in plain.locator(".why").text_content()


def test_a_token_pins_its_step_everywhere(plain: Any) -> None:
    plain.locator(".tok[data-step='2']").first.click()
    wait_root(plain, "pinned", "2")
    assert root(plain, "node") == "1"  # the token's own node
    plain.locator(".tok[data-step='2']").last.click()
    wait_root(plain, "node", "bonus")
    assert root(plain, "step") == "2"
    assert plain.get_attribute("#timeline", "data-pinned") == "2"
    assert "Step 3" in plain.locator("#sentence").text_content()
    assert plain.locator("#text .tok.pinned").count() == 3
    assert plain.locator("#follow").text_content() == "Pinned: step 3 ✕"
    plain.mouse.move(1, 1)
    plain.locator("#follow").click()
    wait_root(plain, "pinned", "")


def test_the_timeline_pins_and_scrubs(plain: Any) -> None:
    box = plain.locator("#timeline").bounding_box()
    plain.mouse.move(box["x"] + 5, box["y"] + 20)
    plain.mouse.down()
    plain.mouse.move(box["x"] + 190, box["y"] + 20, steps=4)
    plain.mouse.up()
    wait_root(plain, "pinned", "4")
    plain.mouse.move(1, 1)
    wait_root(plain, "step", "4")


def test_a_node_shows_why_it_was_rejected(plain: Any) -> None:
    plain.locator("#tree g.node[data-node='2']").hover()
    plain.wait_for_selector(".tip:not([hidden])")
    plain.locator("#tree g.node[data-node='2']").click()
    wait_root(plain, "node", "2")
    details = plain.locator("#details").text_content()
    assert "Rejected: the target wanted “ cat” (p\u00a0=\u00a0.81)." in details
    assert "number 4" in details
    assert "␣other" in details
    assert plain.locator("#tree g.node.selected").get_attribute("data-node") == "2"
    assert plain.locator("#tree .ring").count() == 1
    plain.locator("#tree g.node[data-node='4']").click()
    wait_root(plain, "node", "4")
    assert plain.locator("#tree g.node[data-node='4'] .ring").count() == plain.locator("#tree .ring").count() == 1


def test_a_picked_node_is_not_shown_in_a_step_that_is_pointed_at(plain: Any) -> None:
    plain.locator("#tree g.node[data-node='2']").click()
    wait_root(plain, "node", "2")
    pinned = root(plain, "pinned")
    plain.locator(".tok[data-step='1']").first.hover()
    wait_root(plain, "step", "1")
    assert plain.locator("#tree g.node.selected").count() == plain.locator("#tree .ring").count() == 0
    assert "Step 2" in plain.locator("#details").text_content()
    assert plain.get_attribute("#details", "data-node") == ""
    plain.keyboard.press("ArrowUp")  # to the end of its accepted path, not from the node of the other step
    wait_root(plain, "pinned", "1")
    assert root(plain, "node") == "4"
    plain.locator(f".tok[data-step='{pinned}']").first.hover()
    wait_root(plain, "step", pinned)
    assert plain.locator("#tree g.node.selected").count() == 0


def test_what_is_known_of_a_clicked_node_stays_beside_it(plain: Any) -> None:
    plain.locator("#tree g.node[data-node='2']").click()
    wait_root(plain, "node", "2")
    assert "Rejected" in plain.locator(".tip").text_content()
    plain.mouse.move(5, 5)
    plain.wait_for_selector(".tip", state="hidden")


def outcome_step(number: int, kind: str) -> dict[str, Any]:
    """A step whose boundary was repaired, found for nothing, or missed."""
    step = step_event(number, WORDS)
    if kind == "repaired":
        return step
    if kind == "missed":
        step["selected_prefixes"] = [0]
    step |= {"accepted": [1], "committed": [step["committed"][0], {**step["committed"][2], "text": " cat"}]}
    step["choices"] = step["choices"][:2]
    for node in step["nodes"][4:]:
        node["state"] = {4: "rejected", 5: "unreached"}[node["id"]]
    return step


def run_of(name: str, kinds: list[str], **header: Any) -> list[str]:
    lines = trace(name, [WORDS] * len(kinds))
    steps = [json.dumps(outcome_step(i, kind)) + "\n" for i, kind in enumerate(kinds)]
    return [json.dumps(json.loads(lines[0]) | header) + "\n", lines[1], *steps, *lines[-2:]]


OUTCOMES = ["repaired", "found", "missed", "found", "repaired", "missed"]


@pytest.fixture
def outcomes(page: Any) -> Any:
    page.click("#outcomes")
    page.wait_for_selector("#explorer [data-run=outcomes][data-steps='6']", state="attached")
    page.evaluate("document.activeElement.blur()")
    return page


def test_a_found_boundary_that_gained_nothing_is_no_success(outcomes: Any) -> None:
    press = outcomes.keyboard.press
    press("Home")
    wait_root(outcomes, "step", "0")
    shown = []
    for _ in OUTCOMES[:3]:
        shown.append(
            (
                outcomes.locator("#strip .truth").get_attribute("data-verdict"),
                outcomes.locator("#strip .truth").text_content()[0],
            )
        )
        press("ArrowRight")
        outcomes.wait_for_timeout(80)
    assert shown == [("repaired", "●"), ("found", "○"), ("missed", "✕")]
    assert outcomes.locator("#numbers [data-stat=repaired] .value").text_content() == "33%"
    assert outcomes.locator(".glyphs [data-outcome=found] b").text_content() == "2"


def test_steps_are_found_by_what_came_of_them(outcomes: Any) -> None:
    outcomes.keyboard.press("Home")
    outcomes.locator("[data-outcome=found]").click()
    assert outcomes.locator("#step-filter").input_value() == "found"
    wait_root(outcomes, "pinned", "1")  # what a link copied now would share
    for expected in ("3", "1"):
        outcomes.keyboard.press("n")
        wait_root(outcomes, "step", expected)
    outcomes.keyboard.press("p")
    wait_root(outcomes, "step", "3")
    outcomes.wait_for_function("document.querySelector('.finder .count').textContent === '2 of 2'")
    outcomes.locator("#step-filter").select_option("longest")
    outcomes.keyboard.press("Home")


def test_a_range_of_steps_has_totals_of_its_own(outcomes: Any) -> None:
    press = outcomes.keyboard.press
    press("Home")
    wait_root(outcomes, "step", "0")
    press("ArrowRight")
    wait_root(outcomes, "step", "1")
    press("[")
    press("End")
    wait_root(outcomes, "step", "5")
    press("ArrowLeft")
    wait_root(outcomes, "step", "4")
    press("]")
    words = outcomes.locator(".range").text_content()
    assert words.startswith("Steps 2 to 5 ")
    assert "9 tokens, 2.25 per step" in words
    assert "25% of 4 repaired" in words
    outcomes.get_by_role("button", name="Zoom to them").click()
    outcomes.get_by_role("button", name="Clear").click()
    assert outcomes.locator(".range").is_hidden()


def test_a_drawn_token_is_not_called_wanted_and_the_drafted_one_not_wrong(page: Any) -> None:
    page.click("#sampled")
    page.wait_for_selector("#explorer [data-run=sampled][data-steps='2']", state="attached")
    page.locator("#tree g.node[data-node='2']").click()
    wait_root(page, "node", "2")
    details = page.locator("#details").text_content()
    assert "the target drew “ cat”" in details
    assert "This one could have been drawn as well" in details
    everything = page.locator("#explorer .views").text_content()
    assert "wanted" not in everything
    assert "wrong" not in page.locator("#sentence").text_content()
    assert "drawn: ␣cat" in page.locator("#tree g.node[data-node='2']").text_content()


def test_prefixes_drawn_at_random_are_not_called_predicted(page: Any) -> None:
    page.click("#random")
    page.wait_for_selector("#explorer [data-run=random][data-steps='2']", state="attached")
    assert page.locator("#strip .flag").first.text_content().startswith("?")
    assert "predicted" not in page.locator("#explorer .legend").text_content()
    assert "prediction number" not in page.locator("#tree svg").get_attribute("aria-label")


def test_a_redraft_has_one_name_and_equal_ones_are_said_to_be_merged(page: Any) -> None:
    page.click("#equal")
    page.wait_for_selector("#explorer [data-run=equal][data-steps='1']", state="attached")
    assert "the re-drafts from 0 and 1 (equal here) added 1 more" in page.locator("#sentence").text_content()
    assert "re-drafts from 0 and 1 · added 1" in page.locator("#tree .lane.second").all_text_contents()
    assert "Re-drafts from 0 and 1: equal, verified once." in page.locator("#details").text_content()
    assert "from 0, 1" in page.locator("#details").text_content()


def test_the_search_of_the_browser_finds_words_across_tokens(plain: Any) -> None:
    find = """words => window.find(words, true)
        && [getSelection().anchorNode, getSelection().focusNode].map((n) => n.parentElement.closest('#text .tok')?.textContent)"""
    first, last = plain.evaluate(find, "cat sat")
    assert (first, last) == (" cat", " sat")


def test_an_item_of_the_share_menu_is_chosen_where_a_clicked_button_gets_no_focus(plain: Any) -> None:
    share, menu = plain.locator(".sharing .share"), plain.locator(".sharing .menu")
    lost = "e => e.dispatchEvent(new FocusEvent('focusout', {bubbles: true, relatedTarget: null}))"
    share.click()
    item = menu.get_by_role("menuitem", name="JSONL")
    with plain.expect_download() as started:
        menu.get_by_role("menuitem").first.evaluate(lost)
        assert menu.is_visible()
        item.dispatch_event("click")
    assert started.value.suggested_filename.endswith(".jsonl")
    assert menu.is_hidden()
    share.click()
    menu.get_by_role("menuitem").first.evaluate(lost)
    share.dispatch_event("click")
    assert menu.is_hidden()


def test_the_share_menu_closes_when_one_goes_elsewhere(plain: Any) -> None:
    share, menu = plain.locator(".sharing .share"), plain.locator(".sharing .menu")
    share.click()
    plain.locator("#sentence").click()
    assert menu.is_hidden()
    assert share.get_attribute("aria-expanded") == "false"
    share.click()
    plain.locator("#tree").focus()
    assert menu.is_hidden()
    share.click()
    plain.keyboard.press("Escape")
    assert menu.is_hidden()
    assert share.evaluate("e => e === document.activeElement")


def test_on_a_narrow_screen_the_whole_block_is_in_view(plain: Any) -> None:
    size = plain.viewport_size
    plain.set_viewport_size({"width": 240, "height": 800})
    plain.wait_for_selector(".swipe:not([hidden])")
    box = plain.locator("#tree").bounding_box()
    for node in plain.locator("#tree g.node .shape").all():
        own = node.bounding_box()
        assert box["x"] <= own["x"]
        assert own["x"] + own["width"] <= box["x"] + box["width"]
    assert plain.locator("#strip .flag.hit .r").text_content() == ".54"
    assert "Tap a slim token" in plain.locator(".swipe").text_content()
    plain.set_viewport_size({"width": 320, "height": 800})  # all have room for a word
    plain.wait_for_function("!document.querySelector('.swipe').textContent.includes('slim')")
    assert "Widen" in plain.locator(".swipe").text_content()
    plain.locator("#widen").click()
    assert "Swipe" in plain.locator(".swipe").text_content()
    plain.locator("#widen").click()
    plain.set_viewport_size(size)


def test_the_name_of_the_tree_counts_the_steps_that_are_there(plain: Any) -> None:
    assert "of 6: " in plain.locator("#tree svg").get_attribute("aria-label")


def test_keys(plain: Any) -> None:
    press = plain.keyboard.press
    press("Home")
    wait_root(plain, "step", "0")
    press("ArrowRight")
    wait_root(plain, "step", "1")
    press("ArrowDown")
    wait_root(plain, "node", "4")
    press("Shift+ArrowRight")
    wait_root(plain, "node", "bonus")
    press("Escape")
    wait_root(plain, "node", "")
    press("End")
    wait_root(plain, "step", "5")
    press("?")
    plain.wait_for_selector("dialog.help[open]")
    press("Escape")
    plain.wait_for_selector("dialog.help[open]", state="detached")
    press("Home")
    wait_root(plain, "step", "0")
    press("Space")
    wait_root(plain, "step", "2")
    press("Space")
    assert plain.locator("#follow").get_attribute("data-state") in {"pinned", "playing"}


def test_zoom_stays_until_fit(plain: Any) -> None:
    def scale() -> str:
        return plain.locator("#tree g.world").get_attribute("transform")

    before = scale()
    plain.locator("#tree").hover()
    plain.mouse.wheel(0, -200)
    plain.wait_for_function("t => document.querySelector('#tree g.world').getAttribute('transform') !== t", arg=before)
    zoomed = scale()
    plain.keyboard.press("Home")
    wait_root(plain, "step", "0")
    assert scale() == zoomed
    plain.keyboard.press("f")
    assert scale() == before


def test_selection_from_outside_and_back(plain: Any) -> None:
    plain.evaluate("""() => {
        const view = document.querySelector('#explorer [data-steps]');
        document.addEventListener('explorer:selected', (e) => { window.__selected = e.detail; });
        view.dispatchEvent(new CustomEvent('explorer:select', {detail: {step: 3, node: 4}}));
    }""")
    wait_root(plain, "node", "4")
    assert plain.evaluate("window.__selected") == {"run": f"plain-{plain.grown}", "step": 3, "node": 4}


def test_model_text_is_never_markup(page: Any) -> None:
    page.click("#nasty")
    page.wait_for_selector(f"#explorer [data-run=nasty][data-steps='{len(HOSTILE)}']", state="attached")
    shown = page.locator("#text .output").evaluate("e => e.textContent")
    assert shown == "".join(text.replace("\ud800", "?") * 3 for text in HOSTILE)
    assert page.locator("#text .prompt").text_content() == HOSTILE[0]
    for _ in HOSTILE:
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
    assert page.locator("#explorer script, #explorer img, #explorer [onload], #explorer [onerror]").count() == 0
    assert page.evaluate("window.__pwned") is None
    assert page.dialogs == []
    assert page.errors == []


def test_a_failure_is_a_notice_and_keeps_the_drawing(page: Any) -> None:
    page.click("#fail")
    page.wait_for_selector("#explorer [data-run=failed]", state="attached")
    page.wait_for_selector("#explorer .notice:not([hidden])")
    assert page.locator("#explorer .notice").text_content() == "<b>No memory.</b>"
    assert page.locator("#tree g.node").count() == 7


def test_the_last_step_says_why_the_text_ends_once_that_is_known(page: Any) -> None:
    page.click("#cut")
    page.wait_for_function("document.querySelector('#sentence').textContent.endsWith('; the text ends here.')")
    assert page.locator("#strip .bar.right").count() == 1
    page.click("#ended")
    page.wait_for_function("document.querySelector('#sentence').textContent.startsWith('Step 1 ')")  # what it lands on
    page.keyboard.press("End")
    page.wait_for_function("document.querySelector('#sentence').textContent.includes('the limit on tokens ends')")


def test_packed_lines_are_the_same_lines_and_much_shorter() -> None:
    lines = trace("packed", hostile_steps())
    run = RecordedRun()
    run.append(map(record, lines))
    sent = [json.loads(line) for line in run.lines()]
    assert [r["event"] for r in sent] == [json.loads(line)["event"] for line in lines]
    assert len(run.segment()) < len("".join(lines)) / 2
    assert run.segment(2).split("\n")[1:] == run.segment().split("\n")[3:]


def test_updates_that_the_page_never_saw_are_asked_for(page: Any) -> None:
    page.click("#lossy")
    page.wait_for_selector("#explorer [data-run=lossy][data-steps='6']", state="attached")
    assert page.locator("#text .output").evaluate("e => e.textContent") == " the cat sat" * 6
    assert page.locator("#numbers [data-stat=speedup] .value").text_content() == "2.00×"


def test_a_step_that_is_wanted_is_pinned_once_it_is_there(page: Any) -> None:
    page.reload()  # nothing is selected yet, as when a link is opened
    page.click("#wanted")
    page.wait_for_selector("#explorer [data-run=wanted][data-pinned='2'][data-node='4']", state="attached")
