"""The Calibrate view: what it lists is what the report counts; in a real browser, marks and keys list steps."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr
import pytest
from msgspec import structs

from app import presets
from app.calibrate.measure import drawing
from app.calibrate.tab import CalibrationView
from app.runs.recordings import Recording
from app.view import APP
from d2sd import METHODS, DecodeConfig, Trace
from d2sd.calibration import scored_positions
from d2sd.calibration.report import Measured
from d2sd.trace.run import RecordedRun
from tests.e2e.driving import alone, click_mark, drawn_figure, list_steps
from tools.measure_calibrate import STEPS, repeated


def shown(traces: list[Trace], label: str) -> str:
    """What the page is sent for these runs under this label."""
    return drawing(Measured(traces), [Recording(label, RecordedRun.of([t.header])) for t in traces], label)


def drawn(traces: list[Trace]) -> dict[str, Any]:
    return json.loads(shown(traces, "Some runs"))


@pytest.fixture(scope="module")
def recorded() -> Trace:
    return presets.opening().trace()


@pytest.fixture(scope="module")
def data(recorded) -> dict[str, Any]:
    return drawn([recorded, recorded])


def test_every_figure_has_its_place_in_the_page(data):
    main = (APP / "calibrate" / "main.js").read_text(encoding="utf-8")
    places = set(
        re.findall(r"\w+", " ".join(re.findall(r"^const (?:MAIN|FURTHER|FOLDED) = \[(.*?)\]", main, re.MULTILINE)))
    )
    drawn = {panel["id"] for panel in data["panels"]}
    assert places == drawn | {"moved", "domain", "head"}  # which one text of this drafter has not
    assert places == data["places"]["positions"].keys() | data["places"]["steps"].keys()


def test_a_confidence_head_has_a_figure_whose_marks_list_its_steps(recorded):
    """Half of the steps have one: their places are those of the steps, not of the half."""
    steps = tuple(
        structs.replace(s, trained=(tuple(0.35 for _ in s.first_draft.ids),)) if at % 2 and s.first_draft else s
        for at, s in enumerate(recorded.steps)
    )
    data = drawn([replace(recorded, steps=steps)])
    (panel,) = [p for p in data["panels"] if p["id"] == "head"]
    assert "AUROC" in panel["question"]
    listed = data["places"]["steps"]["head"]
    assert [bool(s.trained) for s in steps] == [own == [3] for own in listed]
    assert panel["names"]["3"] == "Head says 0.3–0.4"


def test_every_mark_of_a_figure_has_steps_and_a_name(data):
    for panel in data["panels"]:
        marks = {place for trace in panel["figure"]["data"] for place in flat(trace.get("customdata", []))}
        cells = {c[1] for row in panel["table"]["rows"] for c in row if isinstance(c, list)}
        of = data["places"]
        listed = set(flat((of["positions"] | of["steps"])[panel["id"]]))
        assert cells <= listed | {-1}, panel["id"]
        assert listed - {-1} <= marks, panel["id"]
        assert all(panel["names"][str(place)] for place in marks - {None}), panel[
            "id"
        ]  # None: a bar that lists nothing


def flat(values: list[Any]) -> Iterator[Any]:
    for value in values:
        yield from flat(value) if isinstance(value, list) else [value]


def test_every_bar_lists_as_many_positions_as_it_counts_accepted_as_often_as_it_says(data):
    steps, report, places = data["steps"], data["report"], data["places"]["positions"]
    assert sum(map(len, steps["confidence"])) == report["positions"]
    for kind in ("uniform", "equal_mass"):
        listed = Counter(itertools.chain.from_iterable(places[kind]))
        assert [listed[n] for n in range(len(report[kind]))] == [b["count"] for b in report[kind]]
    accepted: Counter[int] = Counter()
    for matched, bins in zip(steps["matched"], places["uniform"], strict=True):
        accepted.update(bins[: max(0, matched)])
    for n, b in enumerate(report["uniform"]):
        assert accepted[n] == pytest.approx(b["accepted"] * b["count"])
    by_position = Counter(at + 1 for own in steps["confidence"] for at in range(len(own)))
    assert by_position == {p["position"]: p["count"] for p in report["by_position"]}


def test_every_cell_rank_and_draft_lists_as_many_steps_as_it_counts(data):
    steps, report = data["steps"], data["report"]
    cells = Counter(
        (happened, likeliest)
        for happened, likeliest in zip(steps["happened"], steps["predicted"], strict=True)
        if happened >= 0
    )
    counts = report["matrix"]["counts"]
    assert cells == {(a, p): n for a, row in enumerate(counts) for p, n in enumerate(row) if n}
    size = len(counts)
    of = data["places"]["steps"]
    whole = Counter(itertools.chain.from_iterable(of["matrix"]))
    assert whole == Counter(
        {a * size + p: n for (a, p), n in cells.items()} | ({-1: n} if (n := sum(counts[-1])) else {})
    )
    ranks = Counter(r for r in steps["rank"] if r)
    assert [ranks[n] for n in range(1, len(report["ranks"]["counts"]) + 1)] == report["ranks"]["counts"]
    assert Counter(itertools.chain.from_iterable(of["ranks"])) == {r - 1: n for r, n in ranks.items()}
    won = Counter(itertools.chain.from_iterable(of["gains"]))
    for source in report["gains"]["sources"]:
        assert won[-1 if source["branch"] is None else source["branch"]] == source["won"]


def test_listed_tokens_and_nodes_are_those_of_the_step(recorded, data):
    columns = data["steps"]
    for row, step in enumerate(recorded.steps):
        assert (columns["run"][row], columns["step"][row]) == (0, row)
        for at, node in enumerate(columns["nodes"][row]):
            assert step.nodes[node].depth == at + 1
            assert step.nodes[node].token == step.first_draft.ids[at]
        kept = step.actual_boundary
        if kept is not None and kept < len(step.first_draft.ids):
            assert columns["wanted"][row] == step.committed[kept].text
            assert columns["tokens"][row] == list(step.first_draft.texts[: kept + 1])


@pytest.mark.parametrize("method", [m.id for m in METHODS.values()])
def test_runs_of_every_method_can_be_drawn(engine, method):
    trace = engine.generate("the cat sat", DecodeConfig(method, 12))
    report = drawn([trace])["report"]
    scored = any(s.actual_boundary is not None and s.first_draft for s in trace.steps)
    assert bool(report["positions"]) == (scored or report["of_paths"])


@pytest.fixture(scope="module")
def opened(browser: Any, recorded: Trace) -> Iterator[Any]:
    """The view alone."""

    with gr.Blocks() as demo:
        view = CalibrationView(shown([recorded], "kite"))
        quiet = {"show_progress": "hidden"}
        many = repeated()
        gr.Button("m", elem_id="many").click(lambda: shown(many, "many"), None, view, **quiet)
        gr.Button("a", elem_id="again").click(lambda: shown([recorded], "another"), None, view, **quiet)
        gr.Button("k", elem_id="kite").click(lambda: shown([recorded], "kite"), None, view, **quiet)
        gr.Button("e", elem_id="empty").click(lambda: None, None, view, **quiet)
    with alone(browser, demo, viewport={"width": 1200, "height": 1000}) as page:
        yield page


@pytest.fixture
def page(opened: Any) -> Any:
    """The recorded run in light colours with nothing chosen; opened once for all tests."""
    page = opened
    page.evaluate("document.body.classList.remove('dark')")
    if (
        page.locator("#calibration .line .what").text_content() != "kite"
        or page.locator("#calibration .empty").is_visible()
    ):
        page.click("#kite")
        page.wait_for_function("document.querySelector('#calibration .line .what').textContent === 'kite'")
        page.wait_for_selector("#calibration .empty", state="hidden")
    if page.locator("#calibration .members .icon").is_visible():
        page.locator("#calibration .members .icon").click()
    for table in page.locator("#calibration .figure .tools button[aria-pressed=true]").all():
        table.click()
    drawn_figure(page, "uniform")
    return page


def listed(page: Any) -> int:
    return page.locator("#calibration .rows button").count()


def test_a_bin_and_a_cell_list_what_they_hold(page: Any, data: dict[str, Any], recorded: Trace) -> None:
    report = drawn([recorded])["report"]
    last = len(report["uniform"]) - 1
    click_mark(page, "uniform", last)
    assert listed(page) == report["uniform"][-1]["count"]
    assert "Confidence 0.9–1" in page.locator("#calibration .members").text_content()
    click_mark(page, "uniform", last)
    assert "Surest tokens" in page.locator("#calibration .members h3").text_content()
    click_mark(page, "matrix", len(report["matrix"]["counts"]) + 1)
    assert "Predicted 1, actual 1" in page.locator("#calibration .members").text_content()
    assert listed(page) == report["matrix"]["counts"][1][1]
    click_mark(page, "gains", 0)
    assert listed(page) == report["gains"]["sources"][0]["won"]
    page.locator("#calibration .members .icon").click()
    rejected = sum(s.actual_boundary is not None and s.actual_boundary < 15 for s in recorded.steps)
    assert listed(page) == rejected


def test_the_keyboard_lists_steps_by_the_table_of_a_figure(page: Any, recorded: Trace) -> None:
    last = drawn([recorded])["report"]["uniform"][-1]
    figure = page.locator("#calibration [data-figure=uniform]")
    figure.get_by_role("button", name="Table").focus()
    page.keyboard.press("Enter")
    row = figure.locator("tbody tr").last
    cells = row.locator("td").all_text_contents()
    assert cells[:3] == [str(last["count"]), f"{last['confidence']:.3f}", f"{last['accepted']:.3f}"]
    row.locator("button").focus()
    page.keyboard.press("Enter")
    assert listed(page) == last["count"]
    assert row.locator("button").get_attribute("aria-pressed") == "true"
    page.keyboard.press("Enter")
    assert row.locator("button").get_attribute("aria-pressed") == "false"


def test_a_figure_is_drawn_in_place_and_follows_the_theme(page: Any) -> None:
    background = "document.querySelector('#calibration [data-figure=uniform] .main-svg').style.background"
    page.evaluate("document.querySelector('#calibration [data-figure=uniform] .main-svg').kept = true")
    light = page.evaluate(background)
    page.evaluate("document.body.classList.toggle('dark')")
    page.wait_for_function(f"{background} !== {json.dumps(light)}")
    page.click("#again")
    page.wait_for_function("document.querySelector('#calibration .what').textContent === 'another'")
    page.wait_for_timeout(300)
    assert page.evaluate("document.querySelector('#calibration [data-figure=uniform] .main-svg').kept")


def test_files_hold_the_figures_and_every_scored_position(page: Any, recorded: Trace) -> None:
    report = drawn([recorded])["report"]
    with page.expect_download() as saved:
        page.locator("#calibration [data-save=json]").click()
    assert json.loads(saved.value.path().read_text())["report"] == report
    with page.expect_download() as saved:
        page.locator("#calibration [data-save=csv]").click()
    rows = list(csv.DictReader(io.StringIO(saved.value.path().read_text(encoding="utf-8"), newline="")))
    assert len(rows) == report["positions"]
    assert sum(int(row["accepted"]) for row in rows) == sum(
        sum(right for _, right in scored_positions(s)) for s in recorded.steps
    )


def test_ten_thousand_steps_are_drawn_and_listed_a_page_at_a_time(page: Any) -> None:
    page.click("#many")
    page.wait_for_function("document.querySelector('#calibration .line .what').textContent === 'many'")
    assert f"{STEPS} steps" in page.locator("#calibration .stat").first.text_content()
    list_steps(page, "positions", 1)
    assert listed(page) == 60


def test_nothing_to_draw_says_what_to_do(page: Any) -> None:
    page.click("#empty")
    page.wait_for_selector("#calibration .empty:not([hidden])")


def test_of_trees_without_a_block_draft_every_node_is_listed(engine):
    trace = engine.generate("the cat", DecodeConfig("eagle3", 20))
    data = drawn([trace])
    steps = data["steps"]
    assert data["report"]["of_paths"]
    for row, step in enumerate(trace.steps):
        ended = step.committed[-1].node is not None
        nodes = steps["nodes"][row]
        assert sorted(nodes) == ([] if ended else list(range(1, len(step.nodes))))
        assert nodes[: len(step.accepted)] == ([] if ended else sorted(step.accepted))
        assert steps["matched"][row] == (-1 if ended else len(step.accepted))
        assert steps["tokens"][row] == [step.nodes[n].text for n in nodes]
        assert steps["depths"][row] == [step.nodes[n].depth for n in nodes]
