"""Public objects in a notebook: one line as text, small HTML without scripts, a sandboxed frame for the viewer; the tour runs."""

from __future__ import annotations

import html
import os
import re
from html.parser import HTMLParser

import nbclient
import nbformat
import pytest
from msgspec import structs

import d2sd
from d2sd.__about__ import HOME
from d2sd.calibration import RunStatistics, calibrate, read_report
from d2sd.doctor.findings import Asked, Diagnosis, Failure, Findings
from d2sd.figures import calibration_panels, notebook
from d2sd.figures.calibration import calibration_results
from d2sd.trace.description import MAX_HTML, sentence
from d2sd.trace.metrics import verdict
from d2sd.trace.trace import Trace, read_traces

TOUR = HOME / "examples" / "tour.ipynb"
HOSTILE = '"></iframe><script>alert(1)</script>\x1b[2J\ud800<img src=x onerror=alert(1)>'


@pytest.fixture
def trace():
    return next(iter(read_traces(HOME / "assets" / "traces" / "opening.jsonl.gz")))


def tags(cell):
    found = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.append((tag, dict(attributes)))
    parser.feed(cell)
    return found


def test_public_objects_print_one_line_and_small_html(trace, bundled):
    allowed = {*["div", "span", "pre", "b", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"]}
    report, runs = calibrate([trace]), RunStatistics([trace])
    findings = Findings(
        Asked(HOSTILE),
        "t",
        failures=(Failure("a part", HOSTILE),),
        diagnosis=Diagnosis("none", f"It is {HOSTILE}.", "Change it."),
    )
    step, results = trace.steps[0], calibration_results(runs)
    printed = (
        trace, trace.steps, step, *step.nodes, step.first_draft, *step.branches, trace.prefill, trace.finished, trace.totals,
        report, report.ece, *report.uniform, *read_report(report), runs, results, *calibration_panels(report), findings,
        bundled, d2sd.DecodeConfig(), *d2sd.METHODS.values(), bundled.stream("A boat", max_new_tokens=4), d2sd.show(trace),
    )  # fmt: skip
    assert [repr(one) for one in printed if "\n" in repr(one) or len(repr(one)) > 1000] == []
    for one in (trace, *trace.steps, report, findings):
        cell = one._repr_html_()
        assert len(cell.encode()) < MAX_HTML
        assert {tag for tag, _ in tags(cell)} <= allowed


def hostile_run(trace, copies=1):
    """The run, with hostile texts in its prompt, tokens and nodes, and its steps this many times."""
    steps = []
    for step in trace.steps[:]:
        nodes = tuple(structs.replace(node, text=HOSTILE) for node in step.nodes)
        steps.append(
            structs.replace(
                step, nodes=nodes, committed=tuple(structs.replace(c, text=HOSTILE) for c in step.committed)
            )
        )
    return Trace(trace.header | {"prompt": HOSTILE * copies}, trace.prefill, tuple(steps * copies), None)


@pytest.mark.parametrize("copies", [1, 100])
def test_run_and_step_escape_hostile_text_and_stay_small(trace, copies):
    run = hostile_run(trace, copies)
    for cell in (run._repr_html_(), run.steps[0]._repr_html_()):
        assert len(cell.encode()) < MAX_HTML
        assert {tag for tag, _ in tags(cell)} <= {"div", "span", "pre"}
        assert "&lt;script&gt;" in cell
        assert "\x1b" not in cell


def test_cells_show_the_text_and_the_outcome_of_a_step(trace):
    words = html.unescape(re.sub("<[^>]*>", "", trace._repr_html_()))
    assert trace.text[:200] in words
    assert str(trace.totals) in words
    outcomes = {verdict(step): sentence(step) for step in trace.steps}
    assert "of a re-draft from there" in outcomes["repaired"]
    assert "no re-draft began there" in outcomes["missed"]


def test_show_renders_one_sandboxed_frame(trace):
    trace.header["prompt"] = HOSTILE
    shown = d2sd.show(trace, step=2, height=500)
    ((tag, attributes),) = tags(shown._repr_html_())
    assert tag == "iframe"
    assert attributes["sandbox"] == "allow-scripts allow-downloads"
    assert attributes["srcdoc"] == shown.page
    assert "height:500px" in attributes["style"]
    assert '\\"kind\\":\\"select\\",\\"step\\":1' in shown.page
    assert "<script>alert" not in shown.page


def test_show_accepts_file_and_refuses_missing_step(trace, tmp_path):
    trace.save(tmp_path / "run.jsonl")
    assert d2sd.show(tmp_path / "run.jsonl").title == d2sd.show(trace).title
    with pytest.raises(d2sd.InputError, match="there is no step 99; this trace has"):
        d2sd.show(trace, step=99)


class Output(list):
    """Stands for the handle of a cell's output: the list of what it showed."""

    def update(self, shown, raw=False):
        self.append(shown["text/html"] if raw else shown._repr_html_())


def test_show_updates_one_output_while_the_run_is_generated(bundled, monkeypatch):
    output, now = Output(), iter(range(10**6))
    monkeypatch.setattr(notebook, "_new_output", lambda: output)
    stream = bundled.stream("A boat", method="d2sd", max_new_tokens=40)
    assert notebook.watch(stream, lambda: 0.1 * next(now)) is output
    trace = stream.trace
    assert trace.finished is not None
    assert len(output) < len(trace.steps) + 2  # not at every step
    assert all(len(cell.encode()) < MAX_HTML for cell in output)
    assert output[-1] == trace._repr_html_()
    assert "α" in output[-2]


def test_view_of_generated_run_replaces_its_live_output(bundled, monkeypatch):
    output = Output()
    monkeypatch.setattr(notebook, "_new_output", lambda: output)
    view = d2sd.show(bundled.stream("A boat", max_new_tokens=8))
    assert view.trace.text in d2sd.show(view.trace).trace.text
    assert output[-1]
    assert view._repr_html_().startswith("<iframe")
    assert output[-1] == ""


def test_interrupted_show_keeps_what_was_generated(bundled, monkeypatch):
    class Interrupted(Output):
        def update(self, shown, raw=False):
            raise KeyboardInterrupt

    monkeypatch.setattr(notebook, "_new_output", Interrupted)
    stream = bundled.stream("A boat", max_new_tokens=40)
    with pytest.raises(KeyboardInterrupt):
        d2sd.show(stream)
    assert stream.trace.text
    assert list(stream) == []


def test_tour_runs_in_a_kernel_and_is_stored_with_small_outputs(monkeypatch):
    stored = nbformat.read(TOUR, 4)
    assert TOUR.stat().st_size < 50_000
    assert str(HOME) not in TOUR.read_text(encoding="utf-8")
    assert [cell for cell in stored.cells if cell.cell_type == "code" and not cell.outputs] == [viewer_of(stored)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(HOME), os.environ.get("PYTHONPATH")))))
    ran = nbformat.read(TOUR, 4)
    nbclient.NotebookClient(ran, timeout=600, resources={"metadata": {"path": str(TOUR.parent)}}).execute()
    for cell in ran.cells:
        for output in cell.get("outputs", ()):
            size = len(output.get("data", {}).get("text/html", ""))
            assert size < (700_000 if cell.id == viewer_of(ran).id else MAX_HTML)
    *_, view = viewer_of(ran).outputs
    assert view.data["text/html"].startswith("<iframe")
    assert "\n" not in view.data["text/plain"]


def viewer_of(tour):
    return next(cell for cell in tour.cells if "d2sd.show" in cell.source)
