"""Limits for visitors of a public server, and files that they upload."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from app import links, models, presets
from app.calibrate import measure
from app.explore import run as explore
from app.jobs import Job
from app.models import model_set
from app.race import run as race
from app.runs import recordings
from app.runs.recordings import Recordings, read_all
from app.session import Session
from app.settings import SETTINGS
from app.streaming import RunRequest
from d2sd import InputError
from d2sd.folders.model_sets import BUNDLED
from tests.app.event import updates_of
from tests.unit.test_logs import SGLANG, VLLM

DEFAULTS = {s.name: s.default for s in SETTINGS} | {"max_new_tokens": 8}
LOADABLE = str(BUNDLED / "tiny")  # a folder that could be loaded
REFUSED = [
    (LOADABLE, ""),
    ("Qwen/Qwen3-0.6B", ""),
    ("tiny", f"{LOADABLE}/vp"),
    ("../assets/models/tiny", ""),
    ("folder", ""),
]


@pytest.fixture(params=[{"SPACE_ID": "a/b"}, {"GRADIO_SERVER_NAME": "0.0.0.0"}], ids=["space", "host"])
def public(request, monkeypatch):
    for name, value in request.param.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("name", "vp"), REFUSED)
def test_public_page_opens_no_folder_or_hub_id(public, monkeypatch, name, vp):
    monkeypatch.setattr(models, "load_models", lambda *_, **__: pytest.fail("it was opened"))
    job, asked = Job(), RunRequest("One day", model_set(name, vp), "d2sd", DEFAULTS, compare=False)
    ways = (
        explore.stream_run(Session(), job, asked),
        race.run_race(job, asked, ["dflash"]),
        measure.measure_prompts(job, Recordings(), measure.PromptSource("heldout"), 1, asked),
    )
    said = [u.problem for work in ways for u in updates_of(job, work)]
    assert [s for s in said if s]
    assert all("this page" in s and LOADABLE not in s for s in said if s)
    assert "model" not in links.read_link({"model": name}).values or vp


def trace_file(folder: Path, change=lambda lines: lines, name="x.jsonl") -> Path:
    lines = change([json.loads(line) for line in presets.opening().lines()])
    path = folder / name
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("baseline", "read"),
    [
        *(({"tokens_per_second": speed}, None) for speed in (10**400, -1, 0, "fast", None, [])),
        ({"tokens_per_second": 25.0, "more": 1}, {"tokens_per_second": 25.0}),
        ({"tokens_per_second": 25.0, "unwatched": 40.5}, {"tokens_per_second": 25.0, "unwatched": 40.5}),
    ],
)
def test_uploaded_trace_keeps_valid_baseline_only(tmp_path, baseline, read):
    path = trace_file(tmp_path, lambda lines: [*lines[:-1], {"event": "Baseline", **baseline}])
    found = [json.loads(line) for line in read_all(path)[0][0].lines() if "Baseline" in line]
    assert found == ([{"event": "Baseline", **read}] if read else [])


@pytest.mark.parametrize("change", [{"temperature": 10**400}, {"seed": -(10**30)}, {"x": [1, 2**70]}])
def test_trace_header_numbers_fit_64_bits(tmp_path, change):
    path = trace_file(tmp_path, lambda t: [{**t[0], "config": {**t[0]["config"], **change}}, *t[1:]])
    with pytest.raises(InputError, match=r"line 1: .*(64 bits|out of range)"):
        read_all(path)


def test_uploaded_trace_keeps_validated_events_only(tmp_path):
    path = trace_file(tmp_path)
    lines = path.read_text().split("\n")
    lines[2] = lines[2][:-1] + ',"event":"Failed","sentence":"x"}'
    path.write_text("\n".join(lines))
    with pytest.raises(InputError):
        read_all(path)
    lines[2] = lines[2].replace(',"event":"Failed","sentence":"x"}', ',"event":"StepDone"}')
    reordered = json.loads(lines[3])
    lines[3] = json.dumps({**{k: v for k, v in reordered.items() if k != "event"}, "event": "StepDone"}, indent=None)
    path.write_text("\n".join([*lines[:-1], '{"event":"Unheard-of","html":"<script>"}', ""]))
    run = read_all(path)[0][0].lines()
    assert all(line.startswith('{"event":"') for line in run)
    assert not any("Unheard-of" in line or line.count('"event"') > 1 for line in run)


def test_unicode_line_breaks_stay_inside_texts():
    trace = presets.opening().trace()
    steps = [structs.replace(trace.steps[0], anchor_text="a\u2028b\u0085c"), *trace.steps[1:]]
    kept = recordings.Recording.of(replace(trace, steps=steps))
    assert list(kept.run.trace().steps) == steps


def test_total_size_of_measured_files_is_limited(tmp_path, monkeypatch):
    paths = [str(trace_file(tmp_path, name=f"{n}.jsonl")) for n in range(3)]
    monkeypatch.setattr(recordings, "MAX_MEGABYTES_TOGETHER", 2 * Path(paths[0]).stat().st_size / 10**6)
    kept = Recordings()
    assert measure.measure_files(kept, paths[:2])[1] == ""
    assert "together have more than" in measure.measure_files(kept, paths)[1]
    assert len(kept.runs) == 2


def test_gzip_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "MAX_MEGABYTES", 2)
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(bytes(50 << 20), 1))
    with pytest.raises(InputError, match="larger than 2 MB"):
        read_all(path)


def test_server_logs_are_opened_as_runs_or_summary(tmp_path):
    log = tmp_path / "replies.jsonl"
    log.write_text((json.dumps(VLLM) + "\n") * 30, encoding="utf-8")
    runs, note = read_all(log)
    assert (len(runs), len(runs[0].trace().steps)) == (recordings.MAX_OPENED, 8)
    assert "Calibrate reads all its runs" in note
    assert [len(part) for part in recordings.read_uploads([log])] == [30, 0]
    log.write_text(json.dumps(SGLANG), encoding="utf-8")
    runs, note = read_all(log)
    assert runs == []
    assert note.startswith("sglang, 33 steps, 7 drafted tokens per step, α 3.09, accepted up to position 1: 88%")
    assert recordings.read_uploads([log])[1][0].startswith(f"{log.name} was not read: it is a log with only totals")


def test_uploaded_or_pasted_log_is_summarized_and_escaped(tmp_path):
    log = tmp_path / "served.log"
    log.write_text("[2026-05-27 20:14:38 TP0] Decode batch. accept len: 3.17, accept rate: 0.20\n", encoding="utf-8")
    named = f"ServerArgs(model_path='own_<b>*x*')\n{log.read_text()}"
    assert measure.read_logs(None, named).splitlines()[2].startswith(r"sglang, own\_\<b\>\*x\*, α 3.17.")
    assert "α 3.17" in measure.read_logs([str(log)], None)
    assert measure.read_logs([str(trace_file(tmp_path))], "") == ""
    with pytest.raises(InputError, match="no figures of speculative decoding"):
        measure.read_logs(None, "hello")
