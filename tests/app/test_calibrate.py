"""Calibrate without a browser: it measures the run in Explore, a prompt set or trace files. The steps listed for a mark of a
figure match the counts of the report."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec import structs

from app import models, presets
from app.calibrate import measure
from app.calibrate.tab import _measure, _measure_prompts, _measure_shown, _open
from app.jobs import Call, Job, Ticket
from app.models import model_set
from app.runs.recordings import Recording, Recordings
from app.session import Session
from app.settings import MEASURED
from app.streaming import RunRequest
from app.view import APP
from d2sd import METHODS, DecodeConfig, InputError, Trace, load_trace
from d2sd.bench.prompts import read_prompts
from d2sd.calibration.report import MeasuredRuns
from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.nets.models import Models
from d2sd.trace.run import RecordedRun
from tests.app.event import updates_of

VALUES = {"block_size": 16, "num_branches": 4, "temperature": 0, "max_new_tokens": 16}


def updates(recordings=None, job=None, source="heldout", limit=3, model="tiny", method="d2sd", text=None, **changes):
    job = job or Job()
    work = measure.measure_prompts(
        job,
        recordings if recordings is not None else Recordings(),
        measure.PromptSource(source or "your prompts", text),
        limit,
        RunRequest("", model_set(model), method, {**VALUES, **changes}),
    )
    return updates_of(job, work)


@pytest.fixture
def opening(tmp_path) -> Path:
    path = tmp_path / "opening.jsonl"
    path.write_text("\n".join([*presets.opening().lines(), ""]), encoding="utf-8")
    return path


def test_calibrate_measures_run_shown_in_explore():
    recordings = Recordings()
    drawn = json.loads(measure.measure_shown(recordings, presets.opening()))
    trace = load_trace(presets.OPENING_TRACE)
    assert drawn["report"]["steps"] == len(trace.steps)
    assert drawn["runs"] == [{"label": recordings.runs[0].label, "run": trace.header["run"], "domain": "all"}]
    assert drawn["progress"]["done"] == drawn["progress"]["total"] == 1


def test_prompt_set_drawing_gets_rarer_and_ends_complete_with_notes(monkeypatch):
    monkeypatch.setattr(Models, "notes", lambda _: ["drafter late reads layer 5"])
    recordings = Recordings([Recording("before", RecordedRun())])
    *before, last = updates(recordings, limit=5, max_new_tokens=3)
    assert [u.note for u in (*before, last) if u.note] == [last.note] == ["Drafter late reads layer 5."]
    drawn = [json.loads(u.value) for u in (*before, last) if u.value]
    progress = [d["progress"] for d in drawn]
    assert [p["done"] for p in progress] == [d["report"]["runs"] for d in drawn] == [0, 1, 2, 4, 5]
    assert [p["running"] for p in progress] == [True] * 4 + [False]
    assert {p["total"] for p in progress} == {5}
    labels = [r.label.rstrip("…") for r in recordings.runs]
    prompts = [" ".join(p.text.split()) for p in read_prompts("heldout", 5)]
    assert labels == [prompt[: len(label)] for prompt, label in zip(prompts, labels, strict=True)]


@pytest.mark.parametrize("fails", [False, True])
def test_prompt_set_keeps_finished_prompts_after_stop_or_fault(fails, monkeypatch):
    job, recordings = Job(), Recordings()
    running = updates(recordings, job)
    for update in running:
        if update.value and json.loads(update.value)["progress"]["done"] == 1:
            break
    with monkeypatch.context() as patch:
        if fails:
            patch.setattr(BlockDrafter, "draft", Mock(side_effect=MemoryError))
        job.stopped = not fails
        *_, last = running
    progress = json.loads(last.value)["progress"]
    assert (progress["done"], progress["total"], progress["running"]) == (1, 3, False)
    assert progress["title"].endswith("stopped") or "not enough memory" in last.problem
    assert len(recordings.runs) == 1


def test_new_measurement_replaces_running_prompt_set(opening):
    job, recordings, explore = Job(), Recordings(), Session()
    controls = ["", None, 3, "tiny", "", "", "d2sd", *[VALUES.get(name, False) for name in MEASURED]]
    running = _measure_prompts(job, "heldout", recordings, explore, *controls)
    while not recordings.runs:
        next(running)
    _measure(Call(Ticket(job)), "files", recordings, explore, [str(opening)], "")
    assert job.cancelled()
    assert all(update.value is None for update in running)
    assert [r.label for r in recordings.runs] == ["opening.jsonl"]
    assert [(s.title, len(s.runs)) for s in explore.history.sets] == [
        ("3 prompts of heldout with D²SD", 1),
        ("opening.jsonl", 1),
    ]


def test_trace_files_are_measured_together(opening, tmp_path):
    packed = tmp_path / "other.jsonl.gz"
    packed.write_bytes(gzip.compress(opening.read_bytes()))
    recordings = Recordings()
    one = json.loads(measure.measure_files(recordings, [str(opening)])[0])
    both = json.loads(measure.measure_files(recordings, [str(opening), str(packed)])[0])
    assert both["report"]["positions"] == 2 * one["report"]["positions"]
    assert one["progress"]["title"] == "opening.jsonl"
    assert both["progress"]["title"] == "2 trace files"
    assert [r.label for r in recordings.runs] == ["opening.jsonl", "other.jsonl.gz"]
    with pytest.raises(InputError, match="at most"):
        measure.measure_files(recordings, [str(opening)] * (measure.MAX_FILES + 1))


@pytest.mark.parametrize("content", [b"", b"Once upon a time", b'{"a": 1}\n', b"\x1f\x8b\x08torn", b"\x89PNG\r\n"])
def test_bad_trace_file_is_left_out_and_named(opening, tmp_path, content):
    bad = tmp_path / "bad one.jsonl"
    bad.write_bytes(content)
    recordings = Recordings()
    drawn, said = measure.measure_files(recordings, [str(bad), str(opening)])
    assert said.startswith("1 of 2 files were left out: bad one.jsonl was not read: ")
    assert str(tmp_path) not in said
    assert [r.label for r in recordings.runs] == ["opening.jsonl"]
    assert len(json.loads(drawn)["runs"]) == 1
    with pytest.raises(InputError, match=r"^bad one\.jsonl was not read: "):
        measure.measure_files(recordings, [str(bad)])
    assert [r.label for r in recordings.runs] == ["opening.jsonl"]


def test_pasted_prompts_keep_domains_and_runs_equal_engine_generation():
    text = '{"prompt": "One day, a cat", "domain": "story"}\n{"prompt": "2 + 2 =", "domain": "sum"}'
    recordings = Recordings()
    *_, last = updates(recordings, source=None, text=text)
    assert [r.domain for r in recordings.runs] == ["story", "sum"]
    assert recordings.runs[1].header["domain"] == "sum"
    report = json.loads(last.value)["report"]
    assert [g["name"] for g in report["domains"]] == ["story", "sum"]
    alone = models.engine(model_set("tiny")).generate("One day, a cat", measure.settings.config("d2sd", VALUES))
    first, second = (recording.run.trace().steps for recording in recordings.runs)
    assert [s.committed for s in first] == [s.committed for s in alone.steps]
    assert report["steps"] == len(first) + len(second)


def test_prompt_source_splits_pasted_lines(tmp_path):
    longer = measure.PromptSource.read("own", "What is 1 + 1?\nAnswer:\n \nOne day\n\n", None)
    assert [p.text for p in longer.prompts(5)] == ["What is 1 + 1?\nAnswer:", "One day"]
    source = measure.PromptSource.read("own", " One day\n\n  a cat ", None)
    assert [p.text for p in source.prompts(5)] == ["One day", "a cat"]
    path = tmp_path / "mine.txt"
    path.write_bytes("\ufeffOne day\n".encode())
    assert [p.text for p in measure.PromptSource.read("own", "", str(path)).prompts(5)] == ["One day"]


def test_too_large_prompt_file_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "mine.txt"
    path.write_bytes(b"a" * (measure.MAX_PROMPT_BYTES + 1))
    monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=MemoryError))
    with pytest.raises(InputError, match=r"^mine\.txt is larger than 5 MB$"):
        measure.PromptSource.read("own", "", str(path))


def test_measured_run_opens_in_explore_unchanged_and_unknown_is_refused(opening):
    recordings, session = Recordings(), Session()
    measure.measure_files(recordings, [str(opening)])
    opening.unlink()  # the run is kept without its file
    segment, tab, _ = _open(Call(session, data={"run": 0, "step": 3, "loaded": False}), session, recordings)
    assert session.shown.trace() == presets.opening().trace()
    assert session.shown.header["run"] in segment
    assert tab.selected == "explore"
    for unknown in ({}, {"run": 1}, {"run": -1}, {"run": "0"}, {"run": 1e9}):
        with pytest.raises(InputError, match="no longer stored"):
            _open(Call(session, data=unknown), session, recordings)


def drawn(traces: list[Trace]) -> dict[str, Any]:
    """Returns the figures and steps that the page gets for these runs."""
    runs = [Recording("a run", RecordedRun.of([t.header])) for t in traces]
    return json.loads(measure.calibration_drawing(MeasuredRuns(traces), runs, "Some runs"))


@pytest.fixture(scope="module")
def recorded() -> Trace:
    return presets.opening().trace()


@pytest.fixture(scope="module")
def data(recorded) -> dict[str, Any]:
    return drawn([recorded, recorded])


def test_figures_have_places_in_page(data, recorded):
    main = (APP / "calibrate" / "main.js").read_text(encoding="utf-8")
    lists = dict(re.findall(r"^const (MAIN|FURTHER|HEAD) = \[(.*?)\]", main, re.MULTILINE))
    always, head = (set(re.findall(r"[\w-]+", ids)) for ids in (lists["MAIN"] + lists["FURTHER"], lists["HEAD"]))
    steps = tuple(structs.replace(s, trained=((0.5,) * len(s.first_draft.ids),)) for s in recorded.steps)
    for shown, places in ((data, always), (drawn([replace(recorded, steps=steps)]), always | head)):
        assert places == {panel["id"] for panel in shown["panels"]} | {
            "domain"
        }  # a single text has no figure by domain
        listing = shown["places"]["positions"].keys() | shown["places"]["steps"].keys()
        assert places - {"stops"} == listing  # the figure "stops" lists no steps


def test_figure_marks_have_steps_and_names(data):
    for panel in data["panels"]:
        marks = {place for trace in panel["figure"]["data"] for place in flat(trace.get("customdata", []))}
        cells = {c[1] for row in panel["table"]["rows"] for c in row if isinstance(c, list)}
        of = data["places"]
        listed = set(flat((of["positions"] | of["steps"]).get(panel["id"], [])))
        assert cells <= listed | {-1}, panel["id"]
        assert listed - {-1} <= marks, panel["id"]
        assert all(panel["names"][str(place)] for place in marks - {None})  # None: a bar without steps


def flat(values: list[Any]) -> Iterator[Any]:
    for value in values:
        yield from flat(value) if isinstance(value, list) else [value]


def test_confidence_bars_list_positions_that_match_counts_and_acceptance(data):
    steps, report, places = data["steps"], data["report"], data["places"]["positions"]
    assert sum(map(len, steps["confidence"])) == report["positions"]
    listed = Counter(flat(places["uniform"]))
    assert [listed[n] for n in range(len(report["uniform"]))] == [b["count"] for b in report["uniform"]]
    accepted: Counter[int] = Counter()
    for matched, bins in zip(steps["matched"], places["uniform"], strict=True):
        accepted.update(bins[: max(0, matched)])
    for n, b in enumerate(report["uniform"]):
        assert accepted[n] == pytest.approx(b["accepted"] * b["count"])


def test_matrix_ranks_and_gains_list_as_many_steps_as_counted(data):
    steps, report = data["steps"], data["report"]
    listed = {name: Counter(flat(places)) for name, places in data["places"]["steps"].items()}
    size = len(report["matrix"]["counts"])
    assert listed["matrix"] == {cell: count for cell, count in enumerate(flat(report["matrix"]["counts"])) if count}
    shown = zip(steps["happened"], steps["predicted"], strict=True)
    assert listed["matrix"] == Counter(happened * size + predicted for happened, predicted in shown if happened >= 0)
    assert listed["ranks"] == {rank: count for rank, count in enumerate(report["ranks"]["counts"]) if count}
    assert listed["ranks"] == Counter(rank - 1 for rank in steps["rank"] if rank)
    for source in report["gains"]["sources"]:
        assert listed["gains"][-1 if source["branch"] is None else source["branch"]] == source["won"]


@pytest.mark.parametrize("method", [m.id for m in METHODS.values()])
def test_runs_of_every_method_can_be_drawn(engine, method):
    trace = engine.generate("the cat sat", DecodeConfig(method, 12))
    report = drawn([trace])["report"]
    scored = any(s.actual_boundary is not None and s.first_draft for s in trace.steps)
    assert bool(report["positions"]) == (scored or report["of_paths"])


def test_step_columns_of_trees_without_block_draft_list_every_node(engine):
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


def test_tab_opens_with_recorded_measurement_whose_steps_open():
    recordings, session = Recordings(), Session()
    call = Call(Ticket(), None, {})
    drawn, _, _ = _measure_shown(call, "prompts", recordings, session, None, None)
    data = json.loads(drawn)
    assert data["progress"]["title"].startswith("A recording: 24 prompts with D²SD on tiny.")
    assert data["report"]["positions"] > 500
    assert len(recordings.runs) == data["progress"]["done"] == 24
    again, _, _ = _measure_shown(call, "prompts", recordings, session, None, None)
    assert not isinstance(again, str)  # the recording is drawn already
    _open(Call(session, None, {"run": 3, "loaded": False}), session, recordings)
    assert session.shown.header["run"] == data["runs"][3]["run"]


def test_perfect_confidence_is_answered_for_measured_runs():
    recordings = Recordings()
    with pytest.raises(InputError, match="nothing is measured yet"):
        list(measure.replay_perfectly(Job(), [], model_set("tiny")))
    measure.measure_recorded(recordings)
    *progress, last = measure.replay_perfectly(Job(), recordings.runs[:4], model_set("tiny"))
    assert progress[-1].news == "Replaying text 4 of 4 …"
    assert "The replays cover 4 texts" in last.value
    assert "at 4 random prefixes" in last.value
