"""The page of the trace format names every field, and its example is valid. The example converter writes valid traces."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import d2sd
from d2sd import load_trace
from d2sd.trace import events
from d2sd.trace.trace import parse_trace

ROOT = Path(d2sd.__file__).parent.parent
PAGE = (ROOT / "docs" / "trace-format.md").read_text(encoding="utf-8")
CLASSES = (
    "PrefillDone", "StepDone", "Finished", "Draft", "DraftLevel", "Node", "Choice", "Committed", "Alternative", "TargetTop",
    "Decision", "Option", "StageSeconds", "Baseline",
)  # fmt: skip


@pytest.fixture(scope="module")
def converter():
    spec = importlib.util.spec_from_file_location("convert_step_log", ROOT / "examples" / "convert_step_log.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sample_log(module) -> list[str]:
    return [line.strip() for line in module.__doc__.splitlines() if line.strip().startswith("{")]


@pytest.mark.parametrize("name", CLASSES)
def test_trace_format_page_names_every_field(name):
    missing = [f for f in get_type_hints(getattr(events, name)) if not re.search(rf"[`\"]{f}[`\"]", PAGE)]
    assert missing == []


def test_trace_format_page_example_is_valid():
    (example,) = re.findall(r"```jsonl\n(.*?)```", PAGE, re.DOTALL)
    trace = parse_trace(example.encode())
    assert trace.token_ids == [31]
    assert trace.finished is not None
    assert "".join(trace.lines()).count("\n") == 4


def test_examples_run_as_documented_without_installation(converter, tmp_path):
    for path in (ROOT / "examples").glob("*.py"):
        assert f"    python -m examples.{path.stem} " in path.read_text(encoding="utf-8")
    log = sample_log(converter)
    assert len(log) == 4
    (tmp_path / "log.jsonl").write_text("\n".join(log), encoding="utf-8")
    command = re.search(r"python (-m examples\.\S+) LOG\.jsonl RUN\.jsonl", converter.__doc__)[1]
    files = [tmp_path / "log.jsonl", tmp_path / "run.jsonl"]
    subprocess.run([sys.executable, *command.split(), *files], check=True, cwd=ROOT)
    trace = load_trace(files[1])
    assert trace.header["method"] == "vllm"
    assert trace.token_ids == [20, 21, 22, 31, 32, 27, 28]
    assert [s.actual_boundary for s in trace.steps] == [2, 0, 2]
    assert [[n.state[0] for n in s.nodes] for s in trace.steps] == [list("raar"), list("rruu"), list("raa")]
    assert trace.steps[0].boundary_posterior == pytest.approx((0.1, 0.18, 0.432))
    assert trace.totals.mean_acceptance_length == 2


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"tokens": [1]}', "line 2: Object contains unknown field `tokens`"),
        ('{"drafted": [6], "accepted": 2, "bonus": 3}', "line 2: accepted is 2, but the step drafted 1"),
        ('{"drafted": [6, 7], "accepted": 2, "bonus": 3, "draft_probs": [1]}', "line 2: draft_probs needs one number for each of the 2"),
    ],
)  # fmt: skip
def test_convert_step_log_refuses_invalid_lines(converter, line, sentence):
    with pytest.raises(d2sd.InputError, match=re.escape(sentence)):
        converter.convert([sample_log(converter)[0], line], converter.Texts())


def test_convert_step_log_allows_end_inside_draft(converter):
    request = sample_log(converter)[0]
    rows = ['{"drafted": [], "accepted": 0, "bonus": 5}', '{"drafted": [6, 7, 8], "accepted": 1, "bonus": null}']
    trace = converter.convert([request, *rows], converter.Texts())
    assert parse_trace("".join(trace.lines()).encode()) == trace
    assert trace.steps[0].first_draft is None
    assert trace.steps[1].actual_boundary is None
