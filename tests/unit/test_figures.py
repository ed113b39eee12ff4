"""Figures: the page's colours, escaped texts, and self-contained reports."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from msgspec import structs

from d2sd.__about__ import HOME
from d2sd.__main__ import main
from d2sd.calibration import RunStatistics
from d2sd.calibration.comparison import compare
from d2sd.figures.calibration import calibration_panels
from d2sd.figures.intervals import differences_panel
from d2sd.figures.report import report_page, settings
from d2sd.trace.metrics import DraftCosts
from d2sd.trace.trace import load_trace
from tests.unit.steps import statistics_of

OPENING = HOME / "assets" / "traces" / "opening.jsonl.gz"
HOSTILE = "</script><b>${x}</b><a href='javascript:1'>$a$"


@pytest.fixture(scope="module")
def trace():
    return load_trace(OPENING)


def test_calibration_panels_draw_every_figure(trace):
    statistics = statistics_of([trace.steps] * 8, list(map(str, range(8))), ["a", "b"] * 4)
    statistics.costs = DraftCosts("a machine", lambda rows, nodes: 1.0 + 0.1 * rows + 0.5 * nodes)
    panels = {p.id: p for p in calibration_panels(statistics.report())}
    ids = "uniform positions matrix ranks stops gains second domain"
    assert set(panels) == set(ids.split())
    for panel in panels.values():
        assert panel.figure.data
        assert panel.table.rows
        assert {len(row) for row in panel.table.rows} == {len(panel.table.head)}
    of_head = statistics_of([[structs.replace(s, trained=(s.first_draft.confidence,)) for s in trace.steps]] * 8)
    head = {p.id: p for p in calibration_panels(of_head.report())}
    assert set(head) - set(panels) == {f"head-{id}" for id in ("uniform", "positions", "matrix", "ranks")}
    for id in ("uniform", "positions", "matrix"):
        assert head[f"head-{id}"].figure == head[id].figure
        assert head[f"head-{id}"].title == f"{head[id].title}, confidence head"
    assert {data.yaxis for data in panels["stops"].figure.data} == {"y", "y2", "y3"}  # the third for times
    assert list(calibration_panels(statistics_of([]).report())) == []


def test_report_page_is_self_contained_and_escapes_texts(trace):
    nasty = replace(trace, header={**trace.header, "models": {HOSTILE: HOSTILE}, "method": HOSTILE})
    statistics = statistics_of([nasty.steps] * 10, list(map(str, range(10))), ["a", HOSTILE] * 5)
    differences = differences_panel(compare(statistics.side(), statistics.side()))
    panels = [*calibration_panels(statistics.report()), differences]
    page = report_page(HOSTILE, [HOSTILE], panels, facts=settings([nasty.header]))
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert len(re.findall(r"<script>", page)) == 2
    assert "<b>" not in markup
    assert "<a " not in markup
    assert all("${" not in panel.figure.to_json() for panel in panels)
    assert not re.search(r"<[a-z][^>]*\s(?:src|href)=", markup)
    for data in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', markup):
        assert json.loads(data)["figure"]["data"]


def test_calibrate_and_compare_write_html_reports(trace, tmp_path, capsys):
    one, two = tmp_path / "one.html", tmp_path / "two.html"
    assert main(["calibrate", "--traces", f"{OPENING}", "--html", f"{one}"]) == 0
    assert main(["compare", "--a", f"{OPENING}", "--b", f"{OPENING}", "--html", f"{two}"]) == 0
    assert "No clear difference" in capsys.readouterr().out
    titles = "Calibration: 1 recorded run with d2sd", "Comparison: 1 recorded run (A) with 1 (B)"
    for path, title in zip((one, two), titles, strict=True):
        page = path.read_text(encoding="utf-8")
        assert f"<h1>{title}</h1>" in page
        assert trace.header["models"]["target"] in page
        assert "transformers" in page


@pytest.mark.parametrize(("setting", "shown"), [({}, "K = 4: "), ({"cost_aware": True}, None)])
def test_ranks_panel_marks_k_of_headers_if_every_step_has_it(trace, setting, shown):
    runs = [replace(trace, header={**trace.header, "config": {**trace.header["config"], **setting}})]
    panel = next(p for p in calibration_panels(RunStatistics(runs).report()) if p.id == "ranks")
    labels = [label.text for label in panel.figure.layout.annotations]
    assert [label.startswith(shown) for label in labels] == ([True] if shown else [])
    assert panel.figure.data[0].hovertext[1].startswith("Rank = K: 2<br>Steps: ")
