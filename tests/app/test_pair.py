"""Two sides against each other: what is claimed, names, pairs of texts, and the choice of runs and sets."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app.calibrate.tab import _open_side, compare_sets, sets_drawing
from app.jobs import Ticket
from app.race import pair as pairing
from app.race import tab as race_tab
from app.race.pair import (
    DISTURBED,
    MAX_PAIRS,
    OTHER_MACHINE,
    pair_drawing,
    partners,
    same_machine,
    side_by_side,
    side_names,
    side_of,
)
from app.race.run import default_pair, recorded_race
from app.race.tab import choose_lanes, keep_race, open_lane, race_drawing, show_runs
from app.runs.recordings import Recording, Recordings, RunSet
from app.session import Session
from d2sd.calibration import Estimate, RunStatistics
from d2sd.calibration.comparison import Comparison, Difference
from d2sd.calibration.sentences import TOO_FEW, finding
from d2sd.trace.metrics import verdict
from d2sd.trace.run import RecordedRun
from tests.app.event import answered

NAMES = ("DFlash", "D²SD")
LANES = {method: lane.trace for method, lane in zip(recorded_race().methods, recorded_race().lanes, strict=True)}


def made(title, *traces):
    return RunSet(title, tuple(map(Recording.of, traces)))


def one_machine_of(*traces):
    return same_machine([trace.header for trace in traces])


def compared(tokens, speed):
    """A comparison with these intervals of B − A, of a side with 4 tokens a step and 300 tokens a second."""

    def difference(name, value, interval):
        low, high = interval or (None, None)
        middle = 0.5 if interval is None else (low + high) / 2
        return Difference(name, Estimate(value), Estimate(value + middle), Estimate(middle, low, high), 9, 9)

    return Comparison("prompt", True, False, (difference("tokens", 4.0, tokens), difference("speed", 300.0, speed)))


@pytest.mark.parametrize(
    ("tokens", "speed", "title", "more"),
    [
        ((2, 4), (-90, 10), "D²SD needs 14 steps where DFlash needs 24.", "But a step takes 28.9 ms instead of 13.3: no clear difference in time."),
        ((2, 4), (-90, -10), "D²SD needs 14 steps where DFlash needs 24.", "But a step takes 28.9 ms instead of 13.3, so it is slower: 250 tokens a second instead of 300."),
        ((2, 4), (10, 90), "D²SD needs 14 steps where DFlash needs 24.", "It is also faster: 350 tokens a second instead of 300, although a step takes 28.9 ms instead of 13.3."),
        ((-4, -2), (-90, -10), "DFlash needs 24 steps where D²SD needs 14.", "It is also faster: 300 tokens a second instead of 250."),
        ((-1, 4), (-90, -10), "DFlash and D²SD: no clear difference in tokens a step.", "DFlash is faster: 300 tokens a second instead of 250."),
        ((-1, 4), (-90, 10), "DFlash and D²SD: no clear difference in tokens a step.", "No clear difference in time either."),
        (None, (-90, 10), "Too few steps to compare DFlash with D²SD.", TOO_FEW),
    ],
)  # fmt: skip
def test_finding_claims_no_more_than_intervals(tokens, speed, title, more):
    comparison = compared(tokens, speed)
    assert finding(comparison, NAMES, (24, 14), (13.3, 28.9), same_text=True) == (title, more)
    doubted = f"{TOO_FEW} {DISTURBED}" if tokens is None else DISTURBED
    assert finding(comparison, NAMES, (24, 14), (13.3, 28.9), True, DISTURBED) == (title, doubted)


def test_finding_about_different_texts_or_without_times_has_no_steps_and_no_times():
    title, more = finding(
        compared((2, 4), (10, 90)), ("One by one", "D²SD"), (24, 14), (None, 28.9), False, OTHER_MACHINE
    )
    assert (title, more) == ("D²SD writes 3.0 more tokens a step than one by one.", "")


def test_pair_of_recorded_race_has_finding_rows_and_settings():
    drawn = json.loads(race_drawing(recorded_race()))
    pair = drawn["pair"]
    assert [recorded_race().methods[at] for at in pair["at"]] == ["dflash", "d2sd"]
    assert pair["more"] == "But a step takes 17.6 ms instead of 11.6: no clear difference in time."
    assert pair["differs"].startswith("What differs: method (DFlash → D²SD)")
    rows = {row["name"]: row for row in pair["rows"]}
    row = rows["Tokens a step"]
    assert row["words"].endswith(" more")
    assert (row["clear"], row["counts"], row["change"][0]) == (True, [24, 14], "+")
    assert rows["Tokens a second"]["words"].startswith("not clear: ")
    assert all(row["drawn"] == sorted(row["drawn"]) for row in rows.values())
    sides = [RunStatistics([LANES[m]]) for m in ("autoregressive", "d2sd")]
    short = RunStatistics([replace(LANES["d2sd"], steps=LANES["d2sd"].steps[:12], finished=None)])
    assert "needs" not in pair_drawing(NAMES, sides[0], short)["title"]  # the texts differ
    rows, doubted = (
        {row["name"]: row for row in pair_drawing(NAMES, *sides, doubt)["rows"]} for doubt in ("", OTHER_MACHINE)
    )
    unclear = {"drawn": [], "clear": False, "words": "not compared"}
    assert doubted == {**rows, "Tokens a second": {**rows["Tokens a second"], **unclear}}


def test_running_race_compares_nothing_and_disturbed_lanes_have_no_times():
    race = recorded_race()
    assert "pair" not in json.loads(race_drawing(replace(race, status="DFlash is running.")))
    one, other = default_pair(race)
    busy = replace(race, lanes=tuple(replace(lane, slowed=n == other) for n, lane in enumerate(race.lanes)))
    assert json.loads(race_drawing(busy))["pair"]["more"] == DISTURBED
    calm = next(n for n in range(1, len(race.lanes)) if n not in (one, other))
    assert json.loads(race_drawing(busy, (one, calm)))["pair"]["more"] != DISTURBED


def test_pair_of_equal_or_very_short_sides_claims_nothing():
    whole = LANES["dflash"]
    short = replace(whole, steps=whole.steps[:2], finished=None)
    equal = pair_drawing(("A", "B"), RunStatistics([whole]), RunStatistics([whole]))
    assert "no clear difference" in equal["title"]
    few = pair_drawing(("A", "B"), RunStatistics([short]), RunStatistics([short]))
    assert few["title"].startswith("Too few steps")
    assert {row["words"] for row in few["rows"]} == {"no interval"}


def test_default_pair_is_dflash_and_d2sd_or_the_two_fastest_that_draft():
    race = recorded_race()
    chosen = [n for n, method in enumerate(race.methods) if method in ("autoregressive", "eagle3", "d2sd_tree")]
    some = replace(race, methods=tuple(race.methods[n] for n in chosen), lanes=tuple(race.lanes[n] for n in chosen))
    assert default_pair(some) == (1, 2)
    assert default_pair(replace(some, lanes=some.lanes[::-1])) == (1, 2)  # plain decoding is fast
    assert default_pair(replace(some, methods=("eagle3", *some.methods[1:]))) == (1, 2)  # the first lane is slow
    at = race.methods.index("dflash")
    empty = replace(race.lanes[at], trace=replace(race.lanes[at].trace, steps=()))
    assert at not in default_pair(replace(race, lanes=(*race.lanes[:at], empty, *race.lanes[at + 1 :])))
    assert default_pair(replace(some, methods=some.methods[:2], lanes=some.lanes[:2])) == (0, 1)
    assert default_pair(replace(some, methods=some.methods[:1], lanes=some.lanes[:1])) is None


def test_side_names_state_what_differs():
    one, other = (dict(LANES[m].header) for m in ("dflash", "d2sd"))
    assert side_names([[one], [other]]) == side_names([[one, one], [other]]) == list(NAMES)
    changed = {**other, "config": {**other["config"], "num_branches": 1}}
    assert side_names([[other], [changed]]) == ["D²SD, K 4", "D²SD, K 1"]
    unlimited = {**other, "config": {**other["config"], "node_budget": None}}
    assert side_names([[other], [unlimited]]) == ["D²SD, B 16", "D²SD, no B"]
    unused = {**one, "config": {**one["config"], "num_branches": 1}}
    assert side_names([[one], [unused]]) == ["DFlash, 1", "DFlash, 2"]  # K does not affect DFlash
    seeded = {**other, "config": {**other["config"], "seed": 1}}
    assert side_names([[other], [seeded]]) == ["D²SD, seed 0", "D²SD, seed 1"]
    models = {**other, "models": {**other["models"], "first_drafter": "mine"}}
    assert side_names([[other], [models]])[1] == "D²SD, first drafter mine"
    assert side_names([[other], [other]]) == ["D²SD, 1", "D²SD, 2"]


def test_runs_are_paired_by_prompt(monkeypatch):
    assert partners(("x", "y"), ("y", "z")) == [(1, 0)]
    assert partners(("x",), ("y",)) == [(0, 0)]
    assert partners(("x",), ("y", "x", "x")) == [(0, 1)]
    assert len(partners(("x",) * 99, ("x", "y"))) == MAX_PAIRS
    one, other = LANES["dflash"], LANES["d2sd"]
    pairs = list(side_by_side(made("a", one, one), made("b", other)))
    assert [len(pair["keys"]) for pair in pairs] == [2, 2]
    assert pairs[0]["prompt"] == one.prompt
    side = side_of(other)
    assert "".join(t for step in [side["lead"], *(s[1] for s in side["steps"])] for t, _ in step) == other.text
    assert [len(step[1]) for step in side["steps"]] == [len(step.committed) for step in other.steps]
    assert [step[2] for step in side["steps"]] == [verdict(step) or "" for step in other.steps]
    assert [step[3] for step in side["steps"]] == [step.actual_boundary for step in other.steps]
    assert side_of(LANES["autoregressive"])["steps"][0][3] == -1
    monkeypatch.setattr(pairing, "MAX_CHARACTERS", 1)
    assert len(list(side_by_side(made("a", one, one), made("b", other)))) == 1


@pytest.fixture
def session():
    session = Session()
    keep_race(session.history, recorded_race())
    return session


def test_lanes_are_chosen_and_open_at_a_step(session):
    drawn = json.loads(answered(choose_lanes, Ticket(), session, at=[1, 3])[0])
    assert drawn["pair"]["at"] == [1, 3]
    for at in ([1], [1, 99], "x", [1, "2"]):
        assert "no longer shown" in answered(choose_lanes, Ticket(), session, at=at)[1].value
    segment, tab, _ = answered(open_lane, session, session, lane=1, step=0)
    assert json.loads(segment.split("\n")[0])["message"]["step"] == 0
    assert session.shown.header["method"] == recorded_race().methods[1]
    assert tab.selected == "explore"
    for lane in (None, -1, 99, "1"):
        assert "no longer shown" in answered(open_lane, session, session, lane=lane, outputs=2)[2].value


def test_ticked_runs_of_one_prompt_replace_the_race_and_back(session, monkeypatch):
    session.history.race = recorded_race()
    keys = [kept.run.key for kept in session.history.runs]
    other = replace(LANES["d2sd"], header={**LANES["d2sd"].header, "prompt": "another"})
    alone = session.history.keep(RecordedRun.of(other.records()), "Explore").key
    for _ in range(2):  # the browser may ask twice
        drawn, tab, _ = answered(show_runs, Ticket(), session, keys=[keys[0], alone, keys[2]])
        drawn = json.loads(drawn)
        assert (drawn["kind"], len(drawn["lanes"]), drawn["query"], tab.selected) == ("runs", 2, "", "race")
    before = len(session.history.runs)
    answered(open_lane, session, session, lane=0)
    assert session.shown.key == keys[2]  # the oldest is first
    assert len(session.history.runs) == before
    begun = session.history.keep(RecordedRun.of(list(LANES["d2sd"].records())[:2]), "Explore").key
    for few in ([keys[0], alone], [keys[0], begun], [], None, "x"):
        assert "at least two runs" in answered(show_runs, Ticket(), session, keys=few)[2].value
    assert json.loads(answered(choose_lanes, Ticket(), session, at=None)[0])["kind"] == "recorded"
    assert session.beside is None
    monkeypatch.setattr(race_tab, "MAX_LANES", 2)
    answered(show_runs, Ticket(), session, keys=keys[:3])
    assert [lane.trace for lane in session.beside.lanes] == [
        session.history.find(key).run.trace() for key in keys[1::-1]
    ]


def test_times_of_runs_from_other_machines_are_not_compared(session):
    other = session.history.runs[1].run.trace()
    for hardware in ({"device": "cuda"}, {}):  # another machine, an unknown one
        away = replace(other, header={**other.header, "hardware": hardware, "run": str(hardware)})
        assert one_machine_of(other, away) is False
    keys = [session.history.runs[1].run.key, session.history.keep(RecordedRun.of(away.records()), "Opened").key]
    drawn = json.loads(answered(show_runs, Ticket(), session, keys=keys)[0])
    assert drawn["pair"]["more"] == OTHER_MACHINE
    assert json.loads(sets_drawing(made("a", other), made("b", away)))["more"] == OTHER_MACHINE
    narrow = {**other.header, "hardware": {**other.header["hardware"], "dtype": "float16"}}
    assert same_machine([other.header], [narrow])


def test_measured_set_is_compared_with_sets_of_its_prompts_and_steps_open(session):
    mine = Recordings([Recording.of(LANES["d2sd"])], "mine")
    session.history.keep_set("mine", mine.runs)
    session.history.keep_set("first", [Recording.of(LANES["dflash"])])
    other = replace(LANES["d2sd"], header={**LANES["d2sd"].header, "prompt": "another"})
    session.history.keep_set("other prompts", [Recording.of(other)])
    box, drawn, _ = answered(compare_sets, Ticket(), session, mine, "first")
    assert [name for _, name in box.choices] == ["", "first"]
    drawn = json.loads(drawn)
    assert (drawn["title"], drawn["titles"]) == ("D²SD needs 14 steps where DFlash needs 24.", ["first", "mine"])
    (drawn_pair,) = drawn["pairs"]
    assert drawn_pair["sides"] == [side_of(LANES["dflash"]), side_of(LANES["d2sd"])]
    box, drawn, _ = answered(compare_sets, Ticket(), session, mine, "other prompts")
    assert (box.value, drawn) == ("", "")
    session.history.keep_set("more prompts", [Recording.of(LANES["dflash"]), Recording.of(other)])
    box, _, _ = answered(compare_sets, Ticket(), session, mine, "")
    assert "more prompts" in [name for _, name in box.choices]
    for key, method in zip(drawn_pair["keys"], ("dflash", "d2sd"), strict=True):
        segment, _, _ = answered(_open_side, session, session, mine, key=key, step=2)
        assert json.loads(segment.split("\n")[0])["message"]["step"] == 2
        assert session.shown.header["method"] == method
    assert "no longer stored" in answered(_open_side, session, session, mine, key="gone", step=2, outputs=2)[2].value
    assert answered(compare_sets, Ticket(), session, Recordings(), "first")[1] == ""  # a measurement has begun
    assert json.loads(sets_drawing(made("a", LANES["d2sd"]), made("b", other)))["pairs"]
