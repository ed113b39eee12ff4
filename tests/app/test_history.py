"""The history of a window: its limits, runs that open again, and its restoring after a reload."""

from __future__ import annotations

import json
from types import SimpleNamespace
from urllib.parse import parse_qsl

from app import links, models, presets
from app import session as history
from app.explore.controls import Controls, ExploreTab
from app.race.run import recorded_race
from app.race.tab import RaceTab, race_query
from app.runs.recordings import Recording
from app.runs.tab import GONE, change, show_run
from app.runs.view import about
from app.session import Histories, History, Session
from app.settings import SETTINGS
from d2sd.trace.run import RecordedRun
from tests.app.event import Event, answered

NAME = "0123456789abcdef" * 2


def made(number, size=10):
    return RecordedRun.of([{"event": "Header", "prompt": f"prompt {number}", "run": f"{number}" * size}])


def test_history_keeps_newest_runs_within_limits(monkeypatch):
    kept = History()
    for number in range(history.MAX_RUNS + 3):
        kept.keep(made(number), "Explore")
    assert len(kept.runs) == history.MAX_RUNS
    assert kept.runs[0].label == f"prompt {history.MAX_RUNS + 2}"
    monkeypatch.setattr(history, "MAX_RUN_BYTES", 2500)
    kept.keep(made(1, 1500), "Explore")
    kept.keep(made(2, 1500), "Explore")
    assert [k.label for k in kept.runs] == ["prompt 2"]


def test_history_keeps_equal_runs_once():
    kept, records = History(), list(presets.opening().trace().records())
    whole = kept.keep(presets.opening(), "Recorded")
    assert kept.keep(RecordedRun.of(records), "Calibrate") is kept.keep(whole, "Explore") is whole
    cut = RecordedRun.of(records[:9])
    assert kept.keep(cut, "Opened") is kept.keep(RecordedRun.of(records[:9]), "Opened") is cut
    assert len(kept.runs) == 2


def test_histories_restore_window_and_evict_oldest(monkeypatch):
    monkeypatch.setattr(history, "MAX_WINDOWS", 2)
    histories, names = Histories(), [f"{n:032x}" for n in range(3)]
    first, second = (histories.of(name, History()) for name in names[:2])
    assert histories.of(names[0], History()) is first
    for name in (None, "", "x" * 32, names[0] + "0", 7):
        assert all(histories.of(name, History()) is not kept for kept in (first, second))
    histories.of(names[2], History())
    assert histories.of(names[0], History()) is first
    assert histories.of(names[1], History()) is not second


def test_listed_run_opens_with_its_step():
    session = Session()
    run = session.history.keep(presets.opening(), "Recorded")
    segment, *_ = answered(show_run, session, session, key=run.key, step=3, node=None)
    head = json.loads(segment.split("\n")[0])
    assert (head["key"], head["message"]["step"], head["recorded"]) == (run.key, 3, True)
    assert session.shown is run
    assert answered(show_run, session, session, key="gone", outputs=2)[2].value == GONE
    assert session.shown is run


def test_history_numbers_runs_from_oldest():
    history = History(runs=[Recording(label, RecordedRun()) for label in ("newest", "between", "oldest")])
    assert [getattr(history.numbered(text), "label", None) for text in ("1", "3")] == ["oldest", "newest"]
    assert not any(history.numbered(text) for text in ("0", "4", "-1", "", "²", "1" * 99, history.runs[0].run.key))


def test_listed_run_is_renamed_and_removed():
    session = Session()
    run = session.history.keep(presets.opening(), "Recorded")
    assert (
        json.loads(change("rename")(session, Event(key=run.key, label="  my   run ")))["runs"][0]["label"] == "my run"
    )
    change("rename")(session, Event(key=run.key, label=" "))
    assert session.history.runs[0].label == "my run"
    assert json.loads(change("remove")(session, Event(key=run.key)))["runs"] == []


def test_history_limits_sets_and_renames_equal_titles():
    kept = History()
    for number in range(history.MAX_SETS + 2):
        kept.keep_set(f"set {number}", [Recording("a", made(number))])
    for label, number in (("b", 9), ("b", 9)):  # the second time it is the same set
        kept.keep_set("set 4", [Recording(label, made(number))])
    assert [s.title for s in kept.sets] == ["set 4 (2)", "set 5", "set 4", "set 3"]
    assert [s.runs[0].label for s in kept.sets][:3] == ["b", "a", "a"]


def test_about_names_other_drafter_and_describes_headers_with_any_values():
    models = {"preset": "tiny", "target": "tiny/target", "first_drafter": "run/step-200", "second_drafter": "tiny/vp"}
    assert about({"method": "d2sd", "models": models, "config": {}}) == "D²SD on tiny, drafter run/step-200"
    header = {"method": "vllm", "models": {"preset": ["x"]}, "config": {"block_size": {"x": 9}}, "prompt": None}
    assert about(header) == "vllm on ['x'], γ {'x': 9}"
    assert links.read_link(links.query_fields(header)).values == {}


def test_race_link_fills_form_and_restores_race():
    tab = RaceTab({}, None, None)
    query = dict(parse_qsl(race_query(recorded_race())))
    assert query["tab"] == "race"
    ticked, _ = tab.restored(History(), query | {"methods": "evil,d2sd,dflash", "seed": "x"})
    assert ticked == ["dflash", "d2sd"]
    lanes = tab.restored(History(race=recorded_race()), {})[-1]
    assert len(json.loads(lanes)["lanes"]) == len(recorded_race().lanes)


def test_race_link_starts_once_if_fully_usable(monkeypatch):
    query = dict(parse_qsl(race_query(recorded_race())))
    form = {"model": query["model"], **{s.name: s.default for s in SETTINGS}, "chat": query["chat"] == "true"}
    tab = RaceTab({name: SimpleNamespace(value=value) for name, value in form.items()}, None, None)
    monkeypatch.setattr(models, "loaded", lambda chosen: chosen.name == query["model"])
    assert tab.begins(History(), query)
    assert not tab.begins(History(race=recorded_race()), query)  # already run: a reload does not repeat it
    for other in ({"seed": "7"}, {"num_branches": "2"}, {"block_size": "16"}, {"chat": "true"}, {"prompt": "another"}):
        assert tab.begins(History(race=recorded_race()), query | other), other
    left_open = {name: text for name, text in query.items() if name not in ("chat", "model", "seed")}
    assert not tab.begins(History(race=recorded_race()), left_open)  # the form has the same values
    for other in ({"methods": "evil"}, {"seed": "x"}, {"prompt": ""}):
        assert not tab.begins(History(), query | other)
    monkeypatch.setattr(models, "loaded", lambda chosen: False)
    assert not tab.begins(History(), query)


class Form:
    """The controls of Explore as ``ExploreTab.follow`` gets them, with the user's values."""

    def __init__(self, session, **values):
        inputs = ("prompt", "model", "method", "chat", *(s.name for s in SETTINGS))
        self.controls = Controls(dict.fromkeys(inputs), *[None] * 13)
        self.shown = ExploreTab(None, self.controls, None, None, None)
        self.session = session
        self.values = {**dict.fromkeys(inputs), "method": "d2sd", "chat": True, **values}

    def set(self, answers):
        """Apply the server's answers, as the page does."""
        for name, sent in zip(self.values, answers, strict=False):
            value = sent.get("value", self.values[name]) if isinstance(sent, dict) else sent
            skipped = isinstance(sent, dict) and "value" not in sent
            self.values[name] = self.values[name] if skipped else value

    def show(self, run, arrives=True):
        self.session.show(run, "Explore")
        answers = self.shown.follow(self.session, *self.values.values())
        if arrives:
            self.set(answers)

    def back(self):
        self.set(self.shown.own(self.session))


def written(prompt, **config):
    header = {**presets.opening().header, "prompt": prompt}
    return RecordedRun.of([{**header, "config": {**header["config"], **config}}])


def test_typed_form_values_survive_following_runs():
    form = Form(Session(), prompt="mine", num_branches=7)
    form.show(written("first\r\nrun", seed=2**53 + 1))
    assert (form.values["prompt"], form.values["num_branches"]) == ("first\r\nrun", 4)
    form.values |= {"prompt": "first\nrun", "seed": float(2**53)}  # the same values as a browser has them
    form.show(written("second run"))
    form.back()
    assert (form.values["prompt"], form.values["num_branches"], form.values["seed"]) == ("mine", 7, None)
    form.values |= {"prompt": "typed over it", "chat": False}
    form.show(written("second run"))
    form.values["chat"] = True
    form.show(written("third run"))
    form.back()
    assert (form.values["prompt"], form.values["num_branches"], form.values["chat"]) == ("typed over it", 7, True)


def test_form_update_in_transit_is_not_user_input():
    form = Form(Session(), prompt="mine")
    for prompt, arrives in (("first run", True), ("second run", False), ("third run", True)):
        form.show(written(prompt), arrives)
    form.back()
    assert form.values["prompt"] == "mine"
