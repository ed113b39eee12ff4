"""Text of models and files is text in every view: one run of hostile tokens, sentences and names in a real browser."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr
import pytest
from msgspec import structs
from playwright.sync_api import expect

from app import presets
from app.calibrate.measure import drawing as calibration
from app.calibrate.tab import CalibrationView
from app.explore.controls import ExplorerView
from app.race.run import Lane, Race, recorded_race
from app.race.tab import RaceView
from app.race.tab import drawing as race
from app.runs.recordings import Recording
from d2sd import Trace
from d2sd.calibration.report import Measured
from d2sd.trace.run import RecordedRun
from tests.e2e.driving import alone, list_steps

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


def hostile(trace: Trace) -> Trace:
    """A run with its texts replaced, in turn."""
    steps = []
    for step, words in zip(trace.steps, itertools.cycle(HOSTILE), strict=False):
        drafted = (
            structs.replace(step.first_draft, texts=(words,) * len(step.first_draft.texts))
            if step.first_draft
            else None
        )
        steps.append(
            structs.replace(
                step,
                anchor_text=words,
                first_draft=drafted,
                nodes=tuple(structs.replace(node, text=words) for node in step.nodes),
                choices=tuple(structs.replace(choice, text=words) for choice in step.choices),
                committed=tuple(structs.replace(token, text=words) for token in step.committed),
            )
        )
    header = {**trace.header, "prompt": HOSTILE[0], "run": "nasty"}
    return replace(trace, header=header, prefill=None, steps=tuple(steps))


def hostile_race() -> Race:
    """The recorded race with hostile texts in its first lane, and a second one that broke off with a hostile sentence."""
    whole = recorded_race()
    first, second, *rest = whole.lanes
    return replace(whole, lanes=(Lane(hostile(first.trace)), Lane(second.trace, HOSTILE[1]), *rest))


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    run = hostile(presets.opening().trace())
    named = Recording(HOSTILE[1], RecordedRun.of([run.header]))
    with gr.Blocks() as demo:
        ExplorerView(RecordedRun.of(run.records()).segment())
        RaceView(race(hostile_race()))
        CalibrationView(calibration(Measured([run]), [named], HOSTILE[1]))
    with alone(browser, demo, viewport={"width": 1100, "height": 900}, reduced_motion="reduce") as page:
        yield page


def test_hostile_text_stays_text_in_every_view(page: Any) -> None:
    steps = presets.opening().trace().steps
    expect(page.locator(f"#explorer [data-run=nasty][data-steps='{len(steps)}']")).to_be_attached()
    expect(page.locator("#text .prompt")).to_have_text(HOSTILE[0])
    shown = page.locator("#text .output").evaluate("e => e.textContent")
    texts = (text.replace("\ud800", "?") for text in itertools.cycle(HOSTILE))
    assert shown == "".join(text * len(step.committed) for step, text in zip(steps, texts, strict=False))
    page.locator("#explorer #text .tok").first.click()
    for key in ("ArrowDown", "ArrowRight") * len(steps):
        page.keyboard.press(key)

    expect(page.locator("#race .problem")).to_have_text(HOSTILE[1])
    words = page.locator("#race .lane").first.locator(".words").text_content()
    assert all(text in words for text in HOSTILE[:3])

    expect(page.locator("#calibration .line .what")).to_have_text(HOSTILE[1])
    list_steps(page, "positions", 1)
    while page.locator("#calibration .members .more").is_visible():
        page.locator("#calibration .members .more").click()
    members = page.locator("#calibration .members").text_content().replace("␣", " ")
    assert "${value}" in members
    assert HOSTILE[1] in members

    for view in ("#explorer", "#race", "#calibration .members"):
        assert page.locator(view).locator(":is(script, img, [onload], [onerror])").count() == 0
    assert page.evaluate("window.__pwned") is None
