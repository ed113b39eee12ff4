"""Figures: the page's colours, escaped texts, and self-contained reports."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from d2sd.__about__ import HOME
from d2sd.__main__ import main
from d2sd.calibration import RunStatistics
from d2sd.calibration.comparison import compare
from d2sd.figures.calibration import calibration_panels
from d2sd.figures.intervals import differences_panel
from d2sd.figures.report import report_page, settings
from d2sd.figures.style import COLOURS, safe
from d2sd.trace.trace import load_trace
from tests.unit.steps import calibrated, statistics_of

OPENING = HOME / "assets" / "traces" / "opening.jsonl.gz"
HOSTILE = "</script><b>${x}</b><a href='javascript:1'>$a$"


@pytest.fixture(scope="module")
def trace():
    return load_trace(OPENING)


def report_of(traces, domains=()):
    return calibrated([t.steps for t in traces], [f"{n}" for n in range(len(traces))], domains)


def test_figure_colours_match_light_page():
    assert (COLOURS["panel"], COLOURS["first-tint"]) == ("#ffffff", "#e4eefa")
    assert len(set(COLOURS.values())) == len(COLOURS)  # a dark page replaces each colour by its value


def test_calibration_panels_draw_every_figure(trace):
    panels = {p.id: p for p in calibration_panels(report_of([trace] * 8, ["a", "b"] * 4))}
    ids = "uniform positions matrix ranks stops gains second domain"
    assert set(panels) == set(ids.split())
    for panel in panels.values():
        assert panel.figure.data
        assert panel.table.rows
        assert {len(row) for row in panel.table.rows} == {len(panel.table.head)}
    assert list(calibration_panels(report_of([]))) == []


def test_figures_escape_markup_in_texts(trace):
    assert safe(HOSTILE).startswith("&lt;/script&gt;&lt;b&gt;&#36;{x}")
    figures = [p.figure for p in calibration_panels(report_of([trace] * 2, ["a", HOSTILE]))]
    side = statistics_of([trace.steps] * 10, list(map(str, range(10)))).side()
    figures.append(differences_panel(compare(side, side)).figure)
    for figure in figures:
        written = figure.to_json()
        assert "<b>" not in written
        assert "<a " not in written
        assert "${" not in written


def test_report_page_is_self_contained_and_escapes_texts(trace):
    nasty = replace(trace, header={**trace.header, "models": {HOSTILE: HOSTILE}, "method": HOSTILE})
    report = report_of([nasty, nasty], ["a", HOSTILE])
    page = report_page(HOSTILE, [HOSTILE], calibration_panels(report), facts=settings([nasty.header]))
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert len(re.findall(r"<script>", page)) == 2
    assert "<b>" not in own
    assert "<a " not in own
    assert not re.search(r"<[a-z][^>]*\s(?:src|href)=", own)
    for data in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', own):
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
