"""Measuring without a browser: the run in Explore, a prompt set, trace files; bad input changes nothing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from app import models, presets
from app.calibrate import measure as calibrate
from app.calibrate.tab import NAMES, _measure, _measure_prompts, _open
from app.jobs import Call, Job, Ticket, updates_of
from app.models import Chosen
from app.runs.recordings import Recording, Recordings, RunSet
from app.session import Session
from d2sd import InputError, load_trace
from d2sd.bench.prompts import read_prompts
from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.nets.models import Models
from d2sd.trace.run import RecordedRun

VALUES = {"block_size": 16, "num_branches": 4, "temperature": 0, "max_new_tokens": 16}


def updates(recordings=None, job=None, source="heldout", limit=3, model="tiny", method="d2sd", text=None, **changes):
    job = job or Job()
    work = calibrate.prompts(
        job,
        recordings if recordings is not None else Recordings(),
        calibrate.PromptSource(source or "your prompts", text),
        limit,
        Chosen(model),
        method,
        {**VALUES, **changes},
    )
    return updates_of(job, work)


@pytest.fixture
def opening(tmp_path) -> Path:
    path = tmp_path / "opening.jsonl"
    path.write_text("\n".join([*presets.opening().lines(), ""]), encoding="utf-8")
    return path


def test_calibrate_measures_run_shown_in_explore():
    recordings = Recordings()
    drawn = json.loads(calibrate.shown(recordings, presets.opening()))
    trace = load_trace(presets.OPENING_TRACE)
    assert drawn["report"]["steps"] == len(trace.steps)
    assert drawn["runs"] == [{"label": recordings.runs[0].label, "run": trace.header["run"], "domain": "all"}]
    assert drawn["progress"]["done"] == drawn["progress"]["total"] == 1


def test_prompt_set_ends_with_drafter_notes(monkeypatch):
    monkeypatch.setattr(Models, "notes", lambda _: ["drafter late reads layer 5"])
    *before, last = updates(limit=2, max_new_tokens=4)
    assert last.note == "Drafter late reads layer 5."
    assert not any(u.note for u in before)


def test_prompt_set_drawing_gets_rarer_and_ends_complete():
    recordings = Recordings()
    drawn = [json.loads(u.value) for u in updates(recordings, limit=5, max_new_tokens=3) if u.value]
    progress = [d["progress"] for d in drawn]
    assert [p["done"] for p in progress] == [d["report"]["runs"] for d in drawn] == [0, 1, 2, 4, 5]
    assert [p["running"] for p in progress] == [True] * 4 + [False]
    assert {p["total"] for p in progress} == {5}
    labels = [r.label.rstrip("…") for r in recordings.runs]
    prompts = [" ".join(p.text.split()) for p in read_prompts("heldout", 5)]
    assert labels == [prompt[: len(label)] for prompt, label in zip(prompts, labels, strict=True)]


def test_prompt_set_run_equals_engine_generation():
    recordings = Recordings()
    *_, last = updates(recordings, limit=1)
    (prompt,) = read_prompts("heldout", 1)
    engine = models.engine(Chosen("tiny"))
    (recording,) = recordings.runs
    assert [s.committed for s in recording.run.trace().steps] == [
        s.committed for s in engine.generate(prompt.text, calibrate.settings.config("d2sd", VALUES)).steps
    ]
    assert json.loads(last.value)["report"]["steps"] == len(recording.run.trace().steps)


@pytest.mark.parametrize("fails", [False, True])
def test_prompt_set_stop_keeps_finished_prompts(fails, monkeypatch):
    """And so does a fault."""
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
    controls = ["heldout", "", None, 3, "tiny", "", "", "d2sd", *[VALUES.get(name, False) for name in NAMES]]
    running = _measure_prompts(job, "prompts", recordings, explore, None, *controls)
    while not recordings.runs:
        next(running)
    done = recordings.runs[0]
    drawn, _, _ = _measure(Call(Ticket(job)), "files", recordings, explore, [str(opening)], "", None)
    assert json.loads(drawn)["progress"]["title"] == "opening.jsonl"
    assert job.cancelled()
    assert all(update.value is None for update in running)
    assert [r.label for r in recordings.runs] == ["opening.jsonl"]
    assert [s.title for s in explore.history.sets] == ["3 prompts of heldout with d2sd", "opening.jsonl"]
    assert explore.history.sets[0].runs == (done,)


def test_running_prompt_set_clears_previous_runs():
    recordings = Recordings([Recording("before", RecordedRun())])
    running = updates(recordings)
    while not next(running).value:
        pass
    assert recordings.runs == []


def test_trace_files_are_measured_together(opening, tmp_path):
    packed = tmp_path / "other.jsonl.gz"
    packed.write_bytes(gzip.compress(opening.read_bytes()))
    recordings = Recordings()
    one = json.loads(calibrate.files(recordings, [str(opening)])[0])
    both = json.loads(calibrate.files(recordings, [str(opening), str(packed)])[0])
    assert both["report"]["positions"] == 2 * one["report"]["positions"]
    assert one["progress"]["title"] == "opening.jsonl"
    assert both["progress"]["title"] == "2 trace files"
    assert [r.label for r in recordings.runs] == ["opening.jsonl", "other.jsonl.gz"]
    with pytest.raises(InputError, match="at most"):
        calibrate.files(recordings, [str(opening)] * (calibrate.MAX_FILES + 1))


@pytest.mark.parametrize("content", [b"", b"Once upon a time", b'{"a": 1}\n', b"\x1f\x8b\x08torn", b"\x89PNG\r\n"])
def test_bad_trace_file_is_left_out_and_named(opening, tmp_path, content):
    bad = tmp_path / "bad one.jsonl"
    bad.write_bytes(content)
    recordings = Recordings()
    drawn, said = calibrate.files(recordings, [str(bad), str(opening)])
    assert said.startswith("1 of 2 files were left out: bad one.jsonl was not read: ")
    assert str(tmp_path) not in said
    assert [r.label for r in recordings.runs] == ["opening.jsonl"]
    assert len(json.loads(drawn)["runs"]) == 1
    with pytest.raises(InputError, match=r"^bad one\.jsonl was not read: "):
        calibrate.files(recordings, [str(bad)])
    assert [r.label for r in recordings.runs] == ["opening.jsonl"]


def test_calibrate_again_compares_with_run_set(opening):
    recordings, trace = Recordings(), presets.opening().trace()
    calibrate.files(recordings, [str(opening)])
    drawn = json.loads(calibrate.again(recordings, RunSet.of("the same", [trace])))
    against = drawn["against"]
    assert against["titles"] == ["the same", "opening.jsonl"]
    assert against["comparison"]["paired"]
    assert all(f["difference"]["value"] in (0, None) for f in against["comparison"]["figures"])
    assert json.loads(calibrate.again(recordings, None))["against"] is None


def test_pasted_prompts_keep_domains_in_traces():
    text = '{"prompt": "One day, a cat", "domain": "story"}\n{"prompt": "2 + 2 =", "domain": "sum"}'
    recordings = Recordings()
    *_, last = updates(recordings, source=None, text=text)
    assert [r.domain for r in recordings.runs] == ["story", "sum"]
    assert recordings.runs[1].header["domain"] == "sum"
    assert [g["name"] for g in json.loads(last.value)["report"]["domains"]] == ["story", "sum"]


def test_prompt_source_splits_pasted_lines(tmp_path):
    longer = calibrate.PromptSource.read("own", None, "What is 1 + 1?\nAnswer:\n \nOne day\n\n", None)
    assert [p.text for p in longer.prompts(5)] == ["What is 1 + 1?\nAnswer:", "One day"]
    source = calibrate.PromptSource.read("own", None, " One day\n\n  a cat ", None)
    assert [p.text for p in source.prompts(5)] == ["One day", "a cat"]
    path = tmp_path / "mine.txt"
    path.write_bytes("\ufeffOne day\n".encode())
    assert [p.text for p in calibrate.PromptSource.read("own", None, "", str(path)).prompts(5)] == ["One day"]


def test_measured_run_opens_in_explore_unchanged(opening):
    recordings, session = Recordings(), Session()
    calibrate.files(recordings, [str(opening)])
    opening.unlink()  # the run is kept without its file
    segment, tab, _ = _open(Call(session, data={"run": 0, "step": 3, "loaded": False}), session, recordings)
    assert session.shown.trace() == presets.opening().trace()
    assert session.shown.header["run"] in segment
    assert tab.selected == "explore"


@pytest.mark.parametrize("data", [{}, {"run": 1}, {"run": -1}, {"run": "0"}, {"run": 1e9}])
def test_opening_unknown_measured_run_is_refused(opening, data):
    recordings, session = Recordings(), Session()
    calibrate.files(recordings, [str(opening)])
    with pytest.raises(InputError, match="no longer there"):
        _open(Call(session, data=data), session, recordings)
