"""Controls → trace lines: what the page is fed, without a browser."""

from __future__ import annotations

import gc
import json
import weakref

import pytest
from msgspec import structs

import d2sd
from app import models, presets, streaming
from app.explore import run as explore
from app.explore.run import RunRequest
from app.explore.tab import send_again
from app.jobs import Job, Update, updates_of
from app.links import Link
from app.models import Chosen
from app.session import Session
from app.settings import SETTINGS
from d2sd import Finished, Trace
from d2sd.folders.loading import BUNDLED
from d2sd.nets.models import Models
from d2sd.trace.events import Baseline, StageSeconds
from d2sd.trace.run import RecordedRun
from tests.app.event import Event
from tests.page_client import Window

DEFAULTS = {s.name: s.default for s in SETTINGS}


def request(prompt="One day, a cat", model="tiny", vp="", method="d2sd", compare=False, **settings) -> RunRequest:
    return RunRequest(prompt, Chosen(model, vp), method, compare, {**DEFAULTS, "max_new_tokens": 24, **settings})


BEFORE = {"event": "Header", "prompt": "before"}


def outcome(session=None, **changes):
    job = Job()
    return list(updates_of(job, explore.stream_run(session or Session(), job, request(**changes))))


def lines(updates):
    """The run as a page would put it together from the segments."""
    got: list[str] = []
    for update in updates:
        if update.value is not None:
            head, *new = update.value.rstrip("\n").split("\n")
            assert json.loads(head)["from"] == len(got)
            got += new
    return got


def events(updates):
    run = RecordedRun(_entries=lines(updates))
    return [json.loads(line) for line in run.lines()]


def test_explore_run_streams_trace_with_baseline():
    session = Session()
    updates = outcome(session, compare=True)
    kinds = [e["event"] for e in events(updates)]
    assert kinds[:2] == ["Header", "PrefillDone"]
    assert kinds[-2:] == ["Finished", "Baseline"]
    assert set(kinds[2:-2]) == {"StepDone"}
    assert min(events(updates)[-1][speed] for speed in ("tokens_per_second", "unwatched")) > 0
    assert session.shown.lines() == RecordedRun(_entries=lines(updates)).lines()
    assert session.shown.trace().finished is not None


def test_model_loading_is_announced_once(monkeypatch):
    monkeypatch.setattr(models, "_engines", {})
    first, *_ = outcome()
    assert first.value is None
    assert first.news == "Loading tiny …"
    assert not any(update.news for update in outcome())


def test_loaded_models_are_untracked_by_gc_until_replaced(monkeypatch, tmp_path):
    monkeypatch.setattr(models, "_engines", {})
    monkeypatch.setattr(models, "_load", lambda chosen: d2sd.load(chosen.model))
    for name in ("one", "other"):
        (tmp_path / name).symlink_to(BUNDLED / "tiny")
    target = weakref.ref(models.engine(Chosen(str(tmp_path / "one"))).models.target.model)
    target().__dict__["held"] = target()  # as hooks and models hold each other
    assert not any(part is target() for part in gc.get_objects())
    models.engine(Chosen(str(tmp_path / "other")))
    assert target() is None


@pytest.fixture
def runs(monkeypatch):
    """The engine's runs, nothing being warm: each with its method, "watched" if its trees are drawn, and how far it went."""
    engine, seen = models.engine(Chosen("tiny")), []
    real = engine.run

    def watched(request, stop):
        seen.append([request.config.method + " watched" * request.config.inspect, "begun"])
        mine = seen[-1]
        for event in real(request, stop):
            mine[1] = "ended" if isinstance(event, Finished) else mine[1]
            yield event

    monkeypatch.setattr(engine, "run", watched)
    monkeypatch.setattr(explore, "_warm", {})
    return seen


def test_explore_warms_up_settings_before_timing(monkeypatch, runs):
    monkeypatch.setattr(explore, "SECONDS_OF_ROUNDS", 0)
    monkeypatch.setattr(explore, "TRIES", 1)
    outcome(compare=True)  # longer than the warm-up
    each = ("d2sd watched", "d2sd", "autoregressive")
    once = [[method, until] for method in each for until in ("begun", "ended")]
    assert runs == [
        *once,
        *([method, "ended"] for method in each[1:]),
    ]  # a second time, to see whether the times are even
    runs.clear()
    monkeypatch.setattr(explore, "SECONDS_OF_ROUNDS", float("inf"))
    monkeypatch.setattr(explore, "MAX_ROUNDS", 2)
    outcome(compare=True)
    assert runs == [["d2sd watched", "ended"], *([["d2sd", "ended"], ["autoregressive", "ended"]] * 2)]
    runs.clear()
    outcome(seed=3)
    outcome(num_branches=2)
    assert runs == [["d2sd watched", "ended"], ["d2sd watched", "begun"], ["d2sd watched", "ended"]]
    runs.clear()
    monkeypatch.setattr(streaming, "ON_ZERO_GPU", True)
    run = models.engine(Chosen("tiny")).run
    monkeypatch.setattr(streaming, "_elsewhere", lambda chosen, request: run(request, streaming.never))
    outcome(num_branches=3)
    assert runs == [["d2sd watched", "ended"]]


def test_open_settings_are_filled_by_engine():
    header = events(outcome(second_block_size=None, node_budget=0, method="d2sd_tree"))[0]
    assert (header["config"]["second_block_size"], header["config"]["node_budget"]) == (16, 64)


def test_cancelled_run_stops_before_next_step():
    job = Job()
    run = explore.stream_run(Session(), job, request(max_new_tokens=400))
    updates = [next(run)]
    job.replaced = True
    assert events([*updates, *run])[-1]["stop_reason"] == "stopped"


def test_run_is_silent_after_window_shows_another():
    session = Session()
    run = explore.stream_run(session, Job(), request(compare=True))
    next(run)
    session.show(RecordedRun.of([BEFORE]), "Opened", "trace")
    assert all(update == Update() for update in run)
    assert session.shown.lines() == RecordedRun.of([BEFORE]).lines()


@pytest.mark.parametrize("out_of_sight", [True, False])
def test_run_yields_empty_updates_in_every_phase(out_of_sight, monkeypatch, runs):
    """Gradio ends the work of a closed window where it yields."""
    monkeypatch.setattr(explore, "SECONDS_BETWEEN_YIELDS", 0)
    monkeypatch.setattr(streaming, "SECONDS_BETWEEN_PAUSES", 0)
    session = Session()
    run = explore.stream_run(session, Job(), request(compare=True))
    if out_of_sight:
        while not next(run).value:
            pass
        session.show(RecordedRun.of([BEFORE]), "Opened", "trace")
    silent = [runs[-1][0] for update in run if update == Update()]
    assert set(silent) >= {"d2sd watched", "d2sd", "autoregressive"}


def test_failed_run_keeps_steps_and_names_problem(monkeypatch):
    assert not outcome()[-1].problem  # what is measured once is measured
    engine = models.engine(Chosen("tiny"))
    real = engine.models.target.scores
    calls = []

    def fail_later(hidden):
        calls.append(len(hidden) > 1)
        if sum(calls) > 1:  # the second tree
            raise MemoryError
        return real(hidden)

    monkeypatch.setattr(engine.models.target, "scores", fail_later)
    updates = outcome()
    got = events(updates)
    assert got[-1]["event"] == "Failed"
    assert "not enough memory" in got[-1]["sentence"]
    assert updates[-1].problem == got[-1]["sentence"]
    assert any(e["event"] == "StepDone" for e in got)


def test_linked_run_selects_step_and_names_expected_text():
    values, wanted = (
        {"prompt": "One day, a cat", "model": "tiny", "max_new_tokens": 24},
        {"step": 2, "node": 1, "text": "x"},
    )
    for settings, asked in (({}, wanted), ({"seed": 1}, None)):  # with another seed it is not the run of the link
        updates = outcome(Session(link=Link(values, wanted)), **settings)
        segment = next(update.value for update in updates if update.value)  # where models load, that is said first
        assert json.loads(segment.split("\n")[0])["wanted"] == asked


@pytest.mark.parametrize(("folders", "path"), [("refuse", "…/late"), ("allow", "/srv/own/late")])
def test_drafter_warning_is_in_every_update(monkeypatch, folders, path):
    """Gradio's client may lose what other messages arrive together with."""
    outcome()  # loads the models
    monkeypatch.setattr(Models, "notes", lambda _: ["drafter /srv/own/late reads the output of target layer 5"])
    monkeypatch.setenv("FOLDERS", folders)
    assert {update.note for update in outcome()} == {f"Drafter {path} reads the output of target layer 5."}


def rounds(method, *seconds):
    """Equal runs that took this long by step; the second one ends early."""
    trace = RecordedRun(_entries=lines(outcome(method=method))).trace()
    out = []
    for n, each in enumerate(seconds):
        steps = trace.steps[: len(trace.steps) - n]
        timed = [
            structs.replace(s, elapsed=(k + 1) * each, seconds=StageSeconds(verify=each)) for k, s in enumerate(steps)
        ]
        out.append(Trace.of(trace.header, [trace.prefill, *timed, trace.finished]))
    return out


def test_baseline_of_marks_disturbed_times():
    even = explore.baseline_of(rounds("d2sd", 0.02, 0.021), rounds("autoregressive", 0.01, 0.01))
    assert not even.disturbed
    whole = rounds("d2sd", 0.02)[0]
    tokens = sum(len(step.committed) for step in whole.steps)
    assert even.unwatched == pytest.approx(tokens / (0.02 * len(whole.steps)))  # of the whole run, not of its beginning
    # a step that took less than its pass over one token alone, and rounds that differ by more than a fifth
    assert explore.baseline_of(rounds("d2sd", 0.008, 0.008), rounds("autoregressive", 0.01, 0.01)).disturbed
    assert explore.baseline_of(rounds("d2sd", 0.02, 0.025), rounds("autoregressive", 0.01, 0.01)).disturbed
    assert explore.baseline_of(rounds("d2sd", 0.02, 0.02), rounds("autoregressive", 0.013, 0.01)).disturbed


def test_disturbed_baseline_is_measured_again(monkeypatch):
    found = [Baseline(10.0, 30.0, disturbed=True), Baseline(10.0, 20.0)]
    monkeypatch.setattr(explore, "baseline_of", lambda *_: found[0] if len(found) == 1 else found.pop(0))
    assert events(outcome(compare=True))[-1] == {"event": "Baseline", "tokens_per_second": 10.0, "unwatched": 20.0}
    found[:] = [Baseline(10.0, 30.0, disturbed=True)]
    assert events(outcome(compare=True))[-1]["disturbed"] is True


def test_offer_to_run_quickest_here_runs_the_form_cost_aware(client):
    window, first = Window(client), client.call("explorer", "quickest")
    asked = {"prompt": "One day, a cat", "max_tokens": 4, "compare": False}
    window.at_once(first, client.values(first, **asked), {"quickest": True})
    work = client.then(first)
    messages = list(window.queued(work, client.values(work, **asked)))
    sent = json.dumps([message.get("output") for message in messages]).replace("\\", "")
    assert '"cost_aware":true' in sent


def test_lines_that_the_page_misses_are_sent_again():
    session = Session(shown=presets.opening())
    key, whole = session.shown.key, session.shown.segment()
    assert send_again(session, Event(key=key, start=5)) == session.shown.segment(5) != whole
    for wrong in ({"key": "another run", "start": 5}, {"key": key, "start": -1}, {"key": key, "start": "5"}, {}):
        assert send_again(session, Event(**wrong)) == whole
