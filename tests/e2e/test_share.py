"""Sharing and opening runs: links, files, uploads."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import re
import struct
import time
from collections.abc import Iterator
from urllib.parse import urlencode

import networkx
import pytest
from playwright.sync_api import Page, expect

from app import models, presets
from app.explore import questions
from app.models import model_set
from d2sd.replay.grid import GridProgress
from tests.chromium import new_page
from tests.e2e.driving import (
    drawn_figure,
    finished,
    list_steps,
    measure_what,
    opened,
    output_text,
    pin,
    problem,
    start,
    upload,
    view,
)

pytestmark = pytest.mark.e2e
ITEMS = {"Copy link": None, "JSONL": "jsonl", "GraphML": "graphml", "SVG": "svg", "PNG": "png", "HTML": "html"}


def share(page: Page, item: str) -> bytes:
    """Returns the file that an item of the Share menu downloads."""
    with page.expect_download() as started:
        page.locator(".sharing .share").click()
        page.get_by_role("menuitem", name=item).click()
    download = started.value
    assert download.suggested_filename.endswith(f".{ITEMS[item]}")
    return download.path().read_bytes()


def test_link_to_recorded_run_selects_step_and_node(page: Page, address: str):
    pin(page, 5, 2)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".sharing .share").click()
    page.get_by_role("menuitem", name="Copy link").click()
    expect(page.locator(".sharing .said")).to_have_text("Link copied. It works on this computer only.")
    opened(page, page.evaluate("navigator.clipboard.readText()"))
    expect(view(page)).to_have_attribute("data-pinned", "5")
    expect(view(page)).to_have_attribute("data-node", "2")
    expect(page.locator("#prompt textarea")).to_have_value(str(presets.opening().header["prompt"]))
    expect(problem(page)).to_be_hidden()
    page.evaluate("location.hash = 'draft=1&step=2&beat=1.5'")
    asked = page.locator("#explorer .typed")
    expect(page.locator("#text .typing")).to_be_visible()
    expect(view(page)).to_have_attribute("data-step", "1")
    expect(asked.locator(".said")).to_have_text("To beat: 1.50 accepted tokens a step.")


def test_link_fills_controls_and_run_selects_step(empty: Page, address: str):
    wanted = {"prompt": "One day, a cat — and “Tom” & co.?", "method": "ddtree", "block_size": 8, "node_budget": 20}
    wanted |= {"temperature": 0.5, "seed": 3, "max_new_tokens": 24, "step": 3, "node": 1}
    models.engine(model_set("tiny"))  # if the models are loaded, the run of a link starts automatically
    empty.goto(f"{address}?{urlencode(wanted)}")
    expect(empty.locator("#prompt textarea")).to_have_value(wanted["prompt"])
    expect(empty.locator("#method input")).to_have_value("DDTree")
    for elem_id, name in (("gamma", "block_size"), ("budget", "node_budget"), ("temperature", "temperature")):
        expect(empty.locator(f"#{elem_id} input[type=number]")).to_have_value(str(wanted[name]))
    expect(empty.locator("#branches")).not_to_have_class(re.compile("in-explore"))  # the method has no branches
    expect(view(empty)).to_have_attribute("data-pinned", "2")
    expect(view(empty)).to_have_attribute("data-node", "1")


def test_link_with_invalid_values_applies_valid_ones(empty: Page, address: str):
    attack = '"><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>${window.pwned=1}{{window.pwned=1}}'
    query = {"prompt": attack, "method": attack, "node": attack, "unheard_of": attack, "max_new_tokens": "48"}
    empty.goto(f"{address}?{urlencode(query)}")
    expect(empty.locator("#prompt textarea")).to_have_value(attack)
    expect(empty.locator("#max-tokens input[type=number]")).to_have_value("48")
    expect(problem(empty)).to_have_value(re.compile(r"^Some values of this link could not be used: .*method \("))
    expect(empty.locator("#tree g.node").first).to_be_visible()  # the previous run stays
    assert empty.evaluate("window.pwned") is None


def test_share_menu_closes_when_left_and_files_hold_shown_run(shown: Page):
    button, menu = shown.locator(".sharing .share"), shown.locator(".sharing .menu")
    for leave in (shown.locator("#sentence").click, shown.locator("#tree").focus):
        button.click()
        expect(menu).to_be_visible()
        leave()
        expect(menu).to_be_hidden()
    button.click()
    # Safari does not focus a clicked button: the menu item loses the focus, and no element gets it
    lost = "e => e.dispatchEvent(new FocusEvent('focusout', {bubbles: true, relatedTarget: null}))"
    menu.get_by_role("menuitem").first.evaluate(lost)
    expect(menu).to_be_visible()
    shown.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(button).to_be_focused()

    pin(shown, 4)
    assert share(shown, "JSONL").decode() == "".join(line + "\n" for line in presets.opening().lines())
    graph = networkx.read_graphml(io.BytesIO(share(shown, "GraphML")))
    assert len(graph) == len(presets.opening().trace().steps[4].nodes)
    assert share(shown, "PNG")[:8] == b"\x89PNG\r\n\x1a\n"


def test_shared_picture_is_whole_with_own_colours_also_on_phone(phone: Page, browser):
    pin(phone, 4)
    fill = "es => es.map((e) => getComputedStyle(e).fill)"
    drawn = set(phone.locator("#tree g.node .shape").evaluate_all(fill))
    sentence = phone.locator("#sentence h2").evaluate("title => title.firstChild.textContent")
    svg, png = share(phone, "SVG").decode(), share(phone, "PNG")
    assert "var(" not in svg
    assert "class=" not in svg
    alone = new_page(browser)  # without the page's style sheets
    alone.set_content(svg)
    assert drawn <= set(alone.locator("rect, polygon, circle").evaluate_all(fill))
    title = alone.locator("svg > text").first
    assert title.text_content() == sentence
    box, whole = title.bounding_box(), alone.locator("svg").bounding_box()
    assert box
    assert whole
    assert box["x"] + box["width"] <= whole["x"] + whole["width"]
    shapes = alone.locator("svg > g").first.locator("rect, polygon")
    highest = shapes.evaluate_all("es => Math.min(...es.map((e) => e.getBoundingClientRect().y))")
    assert box["y"] + box["height"] <= highest
    alone.close()
    assert struct.unpack(">2I", png[16:24]) == (3 * whole["width"], 3 * whole["height"])


def test_upload_shows_readable_traces_and_refuses_others(module_page: Page):
    page, lines = module_page, presets.opening().lines()
    before = (view(page).get_attribute("data-run"), output_text(page))
    upload(page, "broken.jsonl", b"Once upon a time\n")
    expect(problem(page)).to_have_value(re.compile("^This trace was not opened: .*not valid JSON"))
    assert (view(page).get_attribute("data-run"), output_text(page)) == before
    head, run = lines[0], str(presets.opening().header["run"])
    lines[0] = head.replace(run, "a" * 32)  # a new id, or the listed run would be shown in full
    upload(page, "half.jsonl", ("\n".join(lines[:9]) + "\n" + lines[9][:200]).encode())
    expect(view(page)).to_have_attribute("data-steps", "7")
    expect(problem(page)).to_have_value(re.compile("recording is incomplete"))

    lines[0] = head.replace(run, "b" * 32)
    trace = "".join(f"{line}\n" for line in lines).encode()
    upload(page, "mine.jsonl.gz", gzip.compress(trace))
    expect(view(page)).to_have_attribute("data-run", "b" * 32)
    finished(page)
    expect(problem(page)).to_be_hidden()
    assert output_text(page) == before[1]
    expect(page.locator("#explorer .verdict")).to_contain_text("opened from mine.jsonl.gz.")
    assert share(page, "JSONL") == trace


def test_opened_server_log_is_judged_by_its_own_figures(module_page: Page):
    page = module_page
    stats = {
        "acceptance_histogram": [0, 20, 10, 10], "num_spec_steps": 40, "num_accepted_draft_tokens": 70, "num_draft_tokens": 120,
        "per_step_accepted": [1] * 20 + [2] * 10 + [3] * 10, "per_step_drafted": [3] * 40,
    }  # fmt: skip
    reply = {"metrics": {"speculative_decoding": stats, "generation_time_ms": 1200.0}}
    upload(page, "reply.json", json.dumps(reply).encode())
    expect(view(page)).to_have_attribute("data-steps", "40")
    page.get_by_role("button", name="When does it pay?").click()
    box = page.locator(".pays:visible")
    expect(box).to_contain_text("drafting pays only if a token takes more than 10.")
    expect(box).not_to_contain_text("H200", use_inner_text=True)
    page.keyboard.press("Escape")


HOSTILE = [
    "<script>window.pwned=1</script>",
    "<img src=x onerror='window.pwned=2;alert(1)'>",
    "${window.pwned=3}",
    "{{constructor.constructor('window.pwned=4')()}}",
    "${value}",
    "</style><svg onload=alert(2)>",
    "\u202eright to left עברית\u2066",
    "line\nbreak\n",
    "👩‍👩‍👧 emoji",
    "x" * 10_000,
]


def hostile_lines() -> Iterator[str]:
    """The recorded run with its texts replaced, in turn."""
    texts = itertools.cycle(HOSTILE)
    for event in map(json.loads, presets.opening().lines()):
        if event["event"] == "Header":
            event |= {"prompt": HOSTILE[0], "run": "nasty"}
        if event["event"] == "StepDone":
            words = next(texts)
            event["anchor_text"] = words
            for part in (*event["nodes"], *event["choices"], *event["committed"]):
                part["text"] = words
            event["first_draft"]["texts"] = [words for _ in event["first_draft"]["texts"]]
        yield json.dumps(event)


def test_hostile_trace_stays_text_in_explore_and_calibrate(module_page: Page):
    page, steps = module_page, presets.opening().trace().steps
    upload(page, f"{HOSTILE[1]}.jsonl", "".join(f"{line}\n" for line in hostile_lines()).encode())
    expect(view(page)).to_have_attribute("data-run", "nasty")
    expect(view(page)).to_have_attribute("data-steps", str(len(steps)))
    expect(page.locator("#text .prompt")).to_have_text(HOSTILE[0])
    texts = zip(steps, itertools.cycle(HOSTILE), strict=False)
    assert output_text(page).endswith("".join(text * len(step.committed) for step, text in texts))
    page.locator("#text .tok[data-step='0']").first.click()
    for key in ("ArrowDown", "ArrowRight") * len(steps):
        page.keyboard.press(key)
    page.get_by_role("tab", name="Calibrate").click()
    measure_what(page, "The run in Explore")
    # the tab opens with a recording: wait until this run has replaced it
    expect(page.locator("#calibration .what").first).to_contain_text("The run in Explore")
    drawn_figure(page, "positions")
    list_steps(page, "positions", 1)
    members, more = page.locator("#calibration .members"), page.locator("#calibration .members .more")
    while more.is_visible():
        more.click()
    expect(members).to_contain_text("${value}")
    for part in ("#explorer", "#runs", "#calibration .members"):
        assert page.locator(part).locator(":is(script, img, [onload], [onerror])").count() == 0
    assert page.evaluate("window.pwned") is None


def endless(*_: object) -> Iterator[GridProgress]:
    while True:
        yield GridProgress(1, 9)
        time.sleep(0.1)


def test_other_settings_of_own_run_are_replayed_on_request_and_travel_in_its_file(
    module_page: Page, browser, tmp_path, monkeypatch
):
    page = module_page

    def by_hand(page: Page) -> str:
        expect(page.locator("#by-hand-k")).to_be_visible()
        page.locator("#by-hand-k").fill("0")
        expect(page.locator(".by-hand output").first).to_have_text("0")
        return page.locator(".by-hand .figures").text_content() or ""

    page.get_by_role("tab", name="Explore").click()
    start(page, "One day, a cat", 32)
    finished(page)
    page.locator(".why-open").click()
    with monkeypatch.context() as patch:
        patch.setattr(questions, "replay_grid", endless)
        page.locator("#replay").click()
        page.locator("#stop-replay").click()
        expect(page.locator(".waits .none")).to_have_text(questions.NOT_REPLAYED)
    page.locator("#replay").click()
    figures = by_hand(page)
    page.keyboard.press("Escape")
    path = tmp_path / "run.html"
    path.write_bytes(share(page, "HTML"))
    alone = new_page(browser, viewport={"width": 1440, "height": 900})
    alone.goto(path.as_uri())
    alone.locator(".why-open").click()
    assert by_hand(alone) == figures
    alone.close()


def test_frame_of_300_pixels_shows_step_without_controls_or_scrolling(empty: Page, address: str):
    empty.set_viewport_size({"width": 640, "height": 300})
    empty.goto(f"{address}?embed=1&step=5")
    expect(view(empty)).to_have_attribute("data-pinned", "4")
    expect(empty.locator("#tree g.node").first).to_be_in_viewport(ratio=1)
    # except the controls that play the step
    assert empty.locator("#explorer button:visible:not(.moments *), #prompt:visible").count() == 0
    assert empty.evaluate("document.documentElement.scrollHeight") <= 300
    empty.keyboard.press("ArrowRight")
    expect(view(empty)).to_have_attribute("data-pinned", "5")


def test_quiz_is_answered_by_keys_and_hides_answers_from_screen_readers(empty: Page, address: str):
    opened(empty, f"{address}?step=5#quiz=1&theme=dark")
    expect(empty.locator("body.dark")).to_be_visible()
    step = presets.opening().trace().steps[4]
    quiz = empty.locator("#explorer .quiz .said")
    expect(empty.locator("#tree svg")).to_have_attribute("aria-label", "Draft tree")
    expect(empty.locator("#explorer .spoken")).to_be_empty()
    for _ in range(step.actual_boundary + 1):
        empty.keyboard.press("ArrowDown")
    empty.keyboard.press("Enter")
    expect(quiz).to_contain_text("Right")
    expect(empty.locator("#tree svg")).to_have_attribute("aria-label", re.compile("^Step 5 of "))
