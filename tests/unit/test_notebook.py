"""A run in a notebook cell: one sandboxed frame, with the page as the text of an attribute."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

import d2sd
from d2sd.__about__ import HOME
from d2sd.trace.trace import read_traces


@pytest.fixture(scope="module")
def trace():
    return next(iter(read_traces(HOME / "assets" / "traces" / "opening.jsonl.gz")))


def frame(cell):
    found = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.append((tag, dict(attributes)))
    parser.feed(cell)
    return found


def test_show_renders_one_sandboxed_frame(trace):
    trace.header["prompt"] = '"></iframe><script>alert(1)</script>'
    shown = d2sd.show(trace, step=2, height=500)
    ((tag, attributes),) = frame(shown._repr_html_())
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
