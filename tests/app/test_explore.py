"""Explore without a browser: from the controls to the trace lines that the page gets."""

from __future__ import annotations

import gc
import itertools
import json
import weakref
from datetime import date

import gradio as gr
import pytest
from msgspec import structs

from app import models, plain, presets, streaming
from app.explore import run as explore
from app.explore import tab as explore_tab
from app.explore.controls import build_controls, filled_in
from app.explore.tab import send_again
from app.jobs import TURNS, Job, Update
from app.links import Link, read_link
from app.models import model_set
from app.session import Session
from app.settings import SETTINGS
from app.streaming import RunRequest
from d2sd import DecodeConfig, StepDone
from d2sd.costs import kept
from d2sd.costs.runs import ThreadShare, plain_step
from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.engine import kept_costs
from d2sd.folders.model_sets import BUNDLED
from d2sd.nets.models import Models
from d2sd.trace.events import Baseline, StageSeconds
from d2sd.trace.run import RecordedRun
from tests.app.event import Event, updates_of
from tests.clocks import Ticking
from tests.page_client import Window

DEFAULTS = {s.name: s.default for s in SETTINGS}


def request(prompt="One day, a cat", model="tiny", vp="", method="d2sd", compare=False, **settings) -> RunRequest:
    return RunRequest(prompt, model_set(model, vp), method, {**DEFAULTS, "max_new_tokens": 24, **settings}, compare)


BEFORE = {"event": "Header", "prompt": "before"}


def outcome(session=None, **changes):
    job = Job()
    return list(updates_of(job, explore.stream_run(session or Session(), job, request(**changes))))


def lines(updates):
    """Returns the lines of a run, joined from the segments as the page does."""
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


def test_loaded_models_are_untracked_by_gc_until_replaced(monkeypatch, tmp_path):
    monkeypatch.setattr(models, "_engines", {})
    for name in ("one", "other"):
        (tmp_path / name).symlink_to(BUNDLED / "tiny")
    target = weakref.ref(models.engine(model_set(str(tmp_path / "one"))).models.target.model)
    target().__dict__["held"] = target()  # a reference cycle, as between hooks and models
    assert not any(part is target() for part in gc.get_objects())
    models.engine(model_set(str(tmp_path / "other")))
    assert target() is None


@pytest.fixture
def runs(monkeypatch):
    """The engine's runs, with no settings warmed up: each as its method, with "watched" if trees are inspected."""
    engine, methods = models.engine(model_set("tiny")), []
    real = engine.run

    def watched(request, stop):
        methods.append(request.config.method + " watched" * request.config.inspect)
        return real(request, stop)

    monkeypatch.setattr(engine, "run", watched)
    monkeypatch.setattr(streaming, "_warm", {})
    return methods


def test_explore_warms_up_settings_once(monkeypatch, runs):
    counts = []
    for changes in ({}, {"seed": 3}, {"num_branches": 2}):
        outcome(**changes)
        counts.append(len(runs))
        runs.clear()
    assert counts == [2, 1, 2]
    monkeypatch.setattr(streaming, "ON_ZERO_GPU", True)
    monkeypatch.setattr(explore, "ON_ZERO_GPU", True)
    run = models.engine(model_set("tiny")).run
    monkeypatch.setattr(streaming, "_elsewhere", lambda chosen, request: run(request, streaming.never))
    assert events(outcome(num_branches=3, compare=True))[-1]["event"] == "Finished"
    assert runs == ["d2sd watched"]


def test_opened_page_gets_ready_for_first_run_once(monkeypatch, unmeasured, runs):
    monkeypatch.setattr(models, "_engines", {})
    set_plain_times(monkeypatch, [0.001] * plain.PLAIN_STEPS)
    loads = []
    monkeypatch.setattr(models, "_load", lambda chosen: loads.append(chosen) or unmeasured)
    with gr.Blocks() as page:
        controls = build_controls()
        explore_tab.build_explore(gr.State(Session(shown=presets.opening())), controls, gr.Tabs())
    at_load = (f for f in page.fns.values() if "load" in {event for _, event in f.targets})
    (opened,) = (f for f in at_load if not f.outputs and not f.js)
    with TURNS.turn("others"):
        opened.fn("tiny")
    opened.fn("a folder of one's own")
    for expected in ([], [model_set("tiny")], [model_set("tiny")]):
        explore._ahead.submit(lambda: None).result()
        assert loads == expected
        opened.fn("tiny")
    assert runs == ["d2sd watched", "autoregressive"]
    form = {name: box.value for name, box in controls.inputs.items()} | {"seed": 5, "max_new_tokens": 20}
    updates = list(explore.stream_run(Session(), Job(), RunRequest.read(form)))
    assert runs[2:] == ["d2sd watched"]  # no warm-up and no measurement
    assert not any(update.news for update in updates)


def test_cancelled_run_stops_before_next_step():
    job = Job()
    run = explore.stream_run(Session(), job, request(max_new_tokens=400))
    updates = [next(run)]
    job.replaced = True
    assert events([*updates, *run])[-1]["stop_reason"] == "stopped"


@pytest.mark.parametrize("out_of_sight", [True, False])
def test_run_yields_empty_updates_in_every_phase(out_of_sight, monkeypatch, runs, unmeasured):
    """Gradio can end the work of a closed window only when it yields."""
    monkeypatch.setattr(streaming.Pacer, "due", lambda _: True)
    session = Session()
    run = explore.stream_run(session, Job(), request(compare=True))
    if out_of_sight:
        while not next(run).value:
            pass
        session.show(RecordedRun.of([BEFORE]), "Opened", "trace")
    updates = [(update, runs[-1:]) for update in run]
    silent = {method for update, methods in updates if update == Update() for method in methods}
    assert silent >= {"d2sd watched", "autoregressive"}
    if out_of_sight:
        assert all(update == Update() for update, _ in updates)
        assert session.shown.lines() == RecordedRun.of([BEFORE]).lines()


def test_failed_run_keeps_steps_and_names_problem(monkeypatch):
    assert not outcome()[-1].problem  # do the one-time work before the failure
    draft, calls = BlockDrafter.draft, itertools.count(1)

    def fail_later(*args, **options):
        if next(calls) > 2:
            raise MemoryError
        return draft(*args, **options)

    monkeypatch.setattr(BlockDrafter, "draft", fail_later)
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
    for settings, asked in (({}, wanted), ({"seed": 1}, None)):  # another seed: not the run of the link
        updates = outcome(Session(link=Link(values, wanted)), **settings)
        segment = next(update.value for update in updates if update.value)  # news of loading may come first
        assert json.loads(segment.split("\n")[0]).get("message") == (asked and {"kind": "select", **asked})


def test_drafter_warning_is_in_every_update(monkeypatch):
    """Gradio's client may lose a warning if the next update comes without it."""
    outcome()  # loads the models
    monkeypatch.setattr(Models, "notes", lambda _: ["drafter /srv/own/late reads the output of target layer 5"])
    monkeypatch.setenv("FOLDERS", "refuse")
    assert {update.note for update in outcome()} == {"Drafter …/late reads the output of target layer 5."}


@pytest.fixture
def unmeasured(monkeypatch, tmp_path):
    """The bundled engine, for which no step of plain decoding has been timed."""
    monkeypatch.setenv("D2SD_HOME", str(tmp_path))
    engine = models.engine(model_set("tiny"))
    monkeypatch.setattr(engine, "_plain", {})
    return engine


class Share(ThreadShare):
    """A simulated thread that computed for this share of the time."""

    def __init__(self, share=1.0):
        super().__init__(wall=Ticking(1.0), thread=Ticking(share))


def set_plain_times(monkeypatch, seconds, share=1.0):
    """Sets the seconds of successive steps of plain decoding, and the share of the time in which their thread computes."""
    real, times = streaming.stream, iter(seconds)

    def timed(run, stop, share):
        for event in real(run, stop, share):
            known = isinstance(event, StepDone) and event.first_draft is None
            yield structs.replace(event, seconds=StageSeconds(verify=next(times))) if known else event

    monkeypatch.setattr(plain, "SECONDS_OF_PLAIN", float("inf"))  # however slow the machine is
    for module in (plain, explore):
        monkeypatch.setattr(module, "stream", timed)
        monkeypatch.setattr(module, "ThreadShare", lambda: Share(share))


def test_plain_step_is_timed_before_first_run_and_kept(monkeypatch, unmeasured, runs):
    set_plain_times(monkeypatch, [0.001] * plain.PLAIN_STEPS)  # no times for further steps
    shown = events(outcome(compare=True))
    assert runs == ["d2sd watched", "autoregressive", "d2sd watched"]
    tokens = sum(len(e["committed"]) for e in shown if e["event"] == "StepDone")
    seconds = sum(sum(e["seconds"].values()) for e in shown if e["event"] == "StepDone")
    baseline = shown[-1]
    assert shown[-2]["event"] == "Finished"
    assert baseline["tokens_per_second"] == pytest.approx(1000)
    assert baseline["unwatched"] == pytest.approx(tokens / seconds)
    assert baseline["measured"] == f"{date.today()}"
    assert baseline["context"] == plain.PLAIN_CONTEXT + plain.PLAIN_STEPS // 2
    runs.clear()
    unmeasured._plain.clear()  # as in another process
    assert events(outcome(compare=True))[-1]["tokens_per_second"] == pytest.approx(1000)
    assert runs == ["d2sd watched"]


@pytest.mark.parametrize(
    ("seconds", "share", "clean"),
    [
        ([0.001, 0.002] * 100, 1.0, True),  # times alternate, but are steady
        ([0.001] * 200, 0.8, False),  # other programs took a fifth of the time
    ],
)
def test_plain_step_is_kept_if_undisturbed(seconds, share, clean, monkeypatch, unmeasured):
    set_plain_times(monkeypatch, seconds, share)
    timing = plain.PlainStep(streaming.prepare_run(model_set("tiny"), "One day", DecodeConfig()), streaming.never)
    assert len([*timing]) >= (plain.PLAIN_STEPS if clean else plain.MOST_PLAIN_STEPS)
    assert (kept.find(kept_costs(), unmeasured._plain_key("dense")) is not None) is clean
    assert timing.compared(9, [StageSeconds(verify=0.01)], Share()).disturbed is not clean


def test_plain_run_corrects_kept_plain_step(monkeypatch, unmeasured):
    unmeasured.keep_plain("dense", plain_step([StageSeconds(verify=9.0)] * 2, 5, "2001-01-01")[0])
    for share, expected in ((0.8, 1 / 9.0), (1.0, 500)):
        set_plain_times(monkeypatch, [0.002] * 200, share)
        outcome(method="autoregressive", max_new_tokens=40)
        assert 1 / unmeasured.plain("dense").plain() == pytest.approx(expected)


def test_baseline_marks_disturbed_times_and_drops_impossible_plain_step(unmeasured):
    run = streaming.prepare_run(model_set("tiny"), "One day", DecodeConfig())
    unmeasured.keep_plain("dense", plain_step([StageSeconds(verify=0.01, tree=0.01)] * 2, 5, "2001-01-01")[0])
    timing, disturbed = plain.PlainStep(run, streaming.never), Share(0.5)
    steps = run.engine.run(run.request)
    while disturbed.next(steps):
        pass
    slow, impossible = ([StageSeconds(verify=seconds)] * 5 for seconds in (0.02, 0.008))
    assert timing.compared(30, slow, Share()) == Baseline(50.0, 300.0, False, "2001-01-01", 5)
    assert timing.compared(30, slow, disturbed).disturbed
    assert timing.compared(30, impossible, disturbed).disturbed
    assert unmeasured.plain("dense") is not None
    # quicker than a pass over one token, though undisturbed: the kept time must be wrong
    assert timing.compared(30, impossible, Share()).disturbed
    assert unmeasured.plain("dense") is None


@pytest.mark.parametrize(("offer", "aware"), [("quickest", "true"), ("full", "false")])
def test_offers_of_the_last_line_run_without_limit_on_nodes(client, offer, aware):
    window, first = Window(client), client.call("explorer", offer)
    asked = {"prompt": "One day, a cat", "max_tokens": 4, "budget": 5}
    window.at_once(first, client.values(first, **asked), {offer: True})
    work = client.then(first)
    messages = list(window.queued(work, client.values(work, **asked)))
    sent = json.dumps([message.get("output") for message in messages]).replace("\\", "")
    assert f'"cost_aware":{aware}' in sent
    assert '"node_budget":null' in sent


def test_block_size_is_read_from_the_config_of_chosen_models(monkeypatch):
    assert [models.block_size(name, "") for name in ("tiny", presets.DSPARK)] == [16, 16]
    assert models.block_size(models.FOLDER, "/nowhere") is None
    assert models.block_size(models.FOLDER, str(BUNDLED / "tiny")) == 16
    monkeypatch.setattr(models, "public", lambda: True)
    assert models.block_size(models.FOLDER, str(BUNDLED / "tiny")) is None


def test_links_of_runs_keep_their_limit_on_nodes():
    assert filled_in(Link({"prompt": "One day"}))["node_budget"] == 16
    for query in ({"method": "d2sd"}, {"methods": "d2sd"}):
        assert filled_in(read_link({"prompt": "One day"} | query))["node_budget"] is None
        assert filled_in(read_link({"node_budget": "5"} | query))["node_budget"] == 5


def test_missed_lines_are_sent_again():
    session = Session(shown=presets.opening())
    key, whole = session.shown.key, session.shown.segment()
    assert send_again(session, Event(key=key, start=5)) == session.shown.segment(5) != whole
    for wrong in ({"key": "another run", "start": 5}, {"key": key, "start": -1}, {"key": key, "start": "5"}, {}):
        assert send_again(session, Event(**wrong)) == whole
