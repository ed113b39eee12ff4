"""Controls → trace lines: what the page is fed, without a browser."""

from __future__ import annotations

import gc
import json
import weakref

import pytest

import d2sd
from app import links, models, streaming
from app.explore import run as explore
from app.explore.run import Asked
from app.jobs import Job, Update, updates_of
from app.links import Link
from app.models import Chosen
from app.session import Session
from app.settings import SETTINGS
from d2sd import Finished
from d2sd.folders.loading import BUNDLED
from d2sd.nets.models import Models
from d2sd.trace.run import RecordedRun

DEFAULTS = {s.name: s.default for s in SETTINGS}


def asked(prompt="One day, a cat", model="tiny", vp="", method="d2sd", compare=False, **settings) -> Asked:
    return Asked(prompt, Chosen(model, vp), method, compare, {**DEFAULTS, "max_new_tokens": 24, **settings})


BEFORE = {"event": "Header", "prompt": "before"}


def outcome(session=None, **changes):
    job = Job()
    return list(updates_of(job, explore.run(session or Session(), job, asked(**changes))))


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


def test_a_run_is_a_trace_in_segments_with_a_measured_baseline():
    session = Session()
    updates = outcome(session, compare=True)
    kinds = [e["event"] for e in events(updates)]
    assert kinds[:2] == ["Header", "PrefillDone"]
    assert kinds[-2:] == ["Finished", "Baseline"]
    assert set(kinds[2:-2]) == {"StepDone"}
    assert min(events(updates)[-1][speed] for speed in ("tokens_per_second", "unwatched")) > 0
    assert session.shown.lines() == RecordedRun(_entries=lines(updates)).lines()
    assert session.shown.trace().finished is not None


def test_models_that_are_not_loaded_are_announced(monkeypatch):
    monkeypatch.setattr(models, "_shelf", models._Shelf())
    first, *_ = outcome()
    assert first.value is None
    assert first.news == "Loading tiny …"
    assert not any(update.news for update in outcome())


def test_models_are_left_alone_by_garbage_collection_until_others_take_their_place(monkeypatch, tmp_path):
    shelf = models._Shelf()
    monkeypatch.setattr(models, "_shelf", shelf)
    monkeypatch.setattr(models, "_load", lambda chosen: d2sd.load(chosen.model))
    for name in ("one", "other"):
        (tmp_path / name).symlink_to(BUNDLED / "tiny")
    target = weakref.ref(shelf.get(Chosen(str(tmp_path / "one"))).models.target.model)
    target().__dict__["held"] = target()  # as hooks and models hold each other
    assert not any(part is target() for part in gc.get_objects())
    shelf.get(Chosen(str(tmp_path / "other")))
    assert target() is None


def test_settings_are_warmed_up_once_before_they_are_timed(monkeypatch):
    engine, runs = models.engine(Chosen("tiny")), []
    real = engine.run

    def watched(request, stop):
        mine = [request.config.method + " watched" * request.config.inspect, "begun"]
        runs.append(mine)
        for event in real(request, stop):
            mine[1] = "ended" if isinstance(event, Finished) else mine[1]
            yield event

    monkeypatch.setattr(engine, "run", watched)
    monkeypatch.setattr(streaming, "_warm", {})
    monkeypatch.setattr(explore, "SECONDS_OF_ROUNDS", 0)
    long = {"max_new_tokens": 24}  # than the warm-up
    outcome(compare=True, **long)
    each = ("d2sd watched", "d2sd", "autoregressive")
    assert runs == [[method, until] for method in each for until in ("begun", "ended")]
    runs.clear()
    monkeypatch.setattr(explore, "SECONDS_OF_ROUNDS", 60)
    monkeypatch.setattr(explore, "MAX_ROUNDS", 2)
    outcome(compare=True, **long)
    assert runs == [["d2sd watched", "ended"], *([["d2sd", "ended"], ["autoregressive", "ended"]] * 2)]
    runs.clear()
    outcome(seed=3, **long)
    outcome(num_branches=2, **long)
    assert runs == [["d2sd watched", "ended"], ["d2sd watched", "begun"], ["d2sd watched", "ended"]]
    runs.clear()
    monkeypatch.setattr(streaming, "ON_ZERO_GPU", True)
    monkeypatch.setattr(streaming, "_elsewhere", lambda chosen, request: watched(request, streaming.never))
    outcome(num_branches=3, **long)
    assert runs == [["d2sd watched", "ended"]]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"prompt": "  "}, "the prompt is empty"),
        ({"prompt": "a" * 30_000}, "at most 20000"),
        ({"block_size": 1}, "block γ must be between 2 and"),
        ({"block_size": 4, "num_branches": 4}, "more than the 3 prefixes"),
        ({"block_size": 8, "second_block_size": 4}, "block γ₂ 4 is smaller than block γ 8"),
        ({"node_budget": 10_000}, "nodes B must be between 1 and"),
        ({"node_budget": 1.5}, "nodes B must be a whole number"),
        ({"temperature": -1}, "temperature must be"),
        ({"temperature": None}, "temperature must be"),
        ({"seed": None}, "seed must be a whole number"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"seed": float("inf")}, "seed must be a whole number"),
        ({"seed": "7"}, "seed must be a whole number"),
        ({"method": "magic"}, "unknown method"),
        ({"model": "magic"}, "unknown model"),
        ({"model": ""}, "unknown model"),
        ({"model": "Qwen/Qwen3-8B"}, "this machine has no CUDA GPU and 4 GB of memory free"),
        ({"vp": "/nowhere"}, "cannot load the drafter"),
        ({"max_new_tokens": 1e9}, "max tokens must be between"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(changes, sentence, monkeypatch):
    monkeypatch.setattr(models.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(models.machine, "memory", lambda: 4e9)
    session = Session(shown=RecordedRun.of([BEFORE]))
    *_, last = outcome(session, **changes)
    assert last.value is None
    assert sentence in last.problem
    assert session.shown.lines() == RecordedRun.of([BEFORE]).lines()


def test_settings_left_open_are_the_engines_choice():
    header = events(outcome(second_block_size=None, node_budget=0, method="d2sd_tree"))[0]
    assert (header["config"]["second_block_size"], header["config"]["node_budget"]) == (16, 64)


def test_a_run_that_is_cancelled_ends_before_its_next_step():
    job = Job()
    run = explore.run(Session(), job, asked(max_new_tokens=400))
    updates = [next(run)]
    job.replaced = True
    assert events([*updates, *run])[-1]["stop_reason"] == "stopped"


def test_a_run_says_nothing_more_once_its_window_shows_something_else():
    session = Session()
    run = explore.run(session, Job(), asked(compare=True))
    next(run)
    session.show(RecordedRun.of([BEFORE]), "Opened", "trace")
    assert all(update == Update() for update in run)
    assert session.shown.lines() == RecordedRun.of([BEFORE]).lines()


@pytest.mark.parametrize("out_of_sight", [True, False])
def test_a_window_that_closes_is_noticed_whatever_goes_on(out_of_sight, monkeypatch):
    """Gradio ends the work of a closed window where it yields."""
    monkeypatch.setattr(explore, "SECONDS_BETWEEN_YIELDS", 0)
    monkeypatch.setattr(streaming, "SECONDS_BETWEEN_PAUSES", 0)
    monkeypatch.setattr(streaming, "_warm", {})
    engine, begun = models.engine(Chosen("tiny")), []
    real = engine.run

    def watched(request, stop):
        begun.append(request.config.method + " watched" * request.config.inspect)
        return real(request, stop)

    monkeypatch.setattr(engine, "run", watched)
    session = Session()
    run = explore.run(session, Job(), asked(compare=True))
    if out_of_sight:
        while not next(run).value:
            pass
        session.show(RecordedRun.of([BEFORE]), "Opened", "trace")
    silent = [begun[-1] for update in run if update == Update()]
    assert set(silent) >= {"d2sd watched", "d2sd", "autoregressive"}


def test_a_run_that_breaks_off_says_so_and_keeps_its_steps(monkeypatch):
    assert not outcome()[-1].problem  # what is measured once is measured
    engine = models.engine(Chosen("tiny"))
    real = engine.models.target.logits
    calls = []

    def fail_later(hidden):
        calls.append(len(hidden) > 1)
        if sum(calls) > 1:  # the second tree
            raise MemoryError
        return real(hidden)

    monkeypatch.setattr(engine.models.target, "logits", fail_later)
    updates = outcome()
    got = events(updates)
    assert got[-1]["event"] == "Failed"
    assert "not enough memory" in got[-1]["sentence"]
    assert updates[-1].problem == got[-1]["sentence"]
    assert any(e["event"] == "StepDone" for e in got)


def test_a_public_page_opens_no_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("SPACE_ID", "someone/space")
    (update,) = [u for u in outcome(model=str(tmp_path)) if u.problem]
    assert "offers only" in update.problem
    (update,) = [u for u in outcome(vp=str(tmp_path)) if u.problem]
    assert "opens no folders" in update.problem


def test_a_run_with_the_settings_of_the_link_selects_its_step():
    models.engine(Chosen("tiny"))  # loaded: the first update is the header
    session = Session(link=Link({"prompt": "One day, a cat", "model": "tiny", "max_new_tokens": 24}, step=2, node=1))
    head = json.loads(outcome(session)[0].value.split("\n")[0])
    assert head["wanted"] == {"step": 2, "node": 1}
    other = json.loads(outcome(session, seed=1)[0].value.split("\n")[0])
    assert other["wanted"] is None


def test_a_run_of_a_link_says_where_its_text_is_another_one():
    asked = {"prompt": "One day, a cat", "model": "tiny", "max_new_tokens": 24}
    made = Session()
    outcome(made)
    same = links.fingerprint(made.shown.trace())
    for text, settings, said in (
        (same, {}, ""),
        ("", {}, ""),
        ("00000000", {}, "near ties"),
        ("00000000", {"seed": 1}, ""),  # not the run of the link
        ("00000000", {"temperature": 0.5}, "at temperature 0.5 it is drawn"),
    ):
        values = asked | {k: v for k, v in settings.items() if k == "temperature"}
        notes = [u.note for u in outcome(Session(link=Link(values, step=2, text=text)), **settings)]
        assert said in notes[-1]
        assert notes[0] == ""
        assert bool(notes[-1]) == bool(said)


def test_what_is_to_be_known_of_a_drafter_reaches_the_page(monkeypatch):
    monkeypatch.setattr(Models, "notes", lambda _: ["drafter /srv/own/late reads the output of target layer 5"])
    for said, path in (("refuse", "…/late"), ("allow", "/srv/own/late")):
        monkeypatch.setenv("FOLDERS", said)
        notes = {update.note for update in outcome()}
        assert notes - {""} == {f"Drafter {path} reads the output of target layer 5."}
