"""Two sides against each other: what is claimed, names, pairs of texts, and the choice of runs and sets."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app.calibrate.tab import _open_side, compare_sets, sets_drawing
from app.jobs import Ticket
from app.race.pair import (
    DISTURBED,
    OTHER_MACHINE,
    pair_drawing,
    partners,
    same_machine,
    side_by_side,
    side_names,
    side_of,
)
from app.race.run import default_pair, recorded_race
from app.race.tab import choose_lanes, open_lane, race_drawing, show_runs
from app.runs.recordings import Recording, Recordings, RunSet
from app.session import Session
from d2sd import InputError
from d2sd.calibration import Estimate, RunStatistics
from d2sd.calibration.comparison import Comparison, Difference
from d2sd.calibration.sentences import TOO_FEW, finding
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
    found = compared(tokens, speed)
    assert finding(found, NAMES, (24, 14), (13.3, 28.9), same_text=True) == (title, more)
    assert finding(found, NAMES, (24, 14), (13.3, 28.9), True, DISTURBED) == (
        title,
        f"{TOO_FEW} {DISTURBED}" if tokens is None else DISTURBED,
    )


def test_finding_about_different_texts_or_without_times_has_no_steps_and_no_times():
    found = compared((2, 4), (10, 90))
    title, more = finding(found, ("Plain decoding", "D²SD"), (24, 14), (None, 28.9), False, OTHER_MACHINE)
    assert (title, more) == ("D²SD writes 3.0 more tokens a step than plain decoding.", "")


def test_pair_of_recorded_race_has_finding_rows_and_settings():
    drawn = json.loads(race_drawing(recorded_race()))
    pair = drawn["pair"]
    assert [recorded_race().methods[at] for at in pair["at"]] == ["dflash", "d2sd"]
    assert pair["title"] == "D²SD needs 14 steps where DFlash needs 24."
    rows = {row["name"]: row for row in pair["rows"]}
    assert list(rows)[:4] == ["Tokens a step", "Tokens a second", "Right in the first draft", "Tokens read a step"]
    assert rows["Tokens a step"]["words"].endswith(" more")
    assert rows["Tokens a step"]["clear"]
    assert rows["Tokens a step"]["counts"] == [24, 14]
    assert rows["Tokens a second"]["words"].startswith("not clear: ")
    assert all(row["drawn"] == sorted(row["drawn"]) for row in rows.values())
    assert pair["differs"].startswith("What differs: method (DFlash → D²SD)")
    assert pair["comparison"]["unit"].startswith("block of")
    doubted = pair_drawing(NAMES, *(RunStatistics([LANES[m]]) for m in ("dflash", "d2sd")), OTHER_MACHINE)
    assert next(row for row in doubted["rows"] if row["name"] == "Tokens a second")["words"] == "not compared"


def test_pair_of_equal_or_very_short_sides_claims_nothing():
    whole = LANES["dflash"]
    short = replace(whole, steps=whole.steps[:2], finished=None)
    equal = pair_drawing(("A", "B"), RunStatistics([whole]), RunStatistics([whole]))
    assert "no clear difference" in equal["title"]
    few = pair_drawing(("A", "B"), RunStatistics([short]), RunStatistics([short]))
    assert few["title"] == "Too few steps to compare a with b." or few["title"].startswith("Too few steps")
    assert {row["words"] for row in few["rows"]} == {"no interval"}


def test_default_pair_is_dflash_and_d2sd_or_the_two_fastest_that_draft():
    race = recorded_race()
    chosen = [n for n, method in enumerate(race.methods) if method in ("autoregressive", "eagle3", "d2sd_tree")]
    some = replace(race, methods=tuple(race.methods[n] for n in chosen), lanes=tuple(race.lanes[n] for n in chosen))
    assert default_pair(some) == (1, 2)
    assert default_pair(replace(some, methods=some.methods[:2], lanes=some.lanes[:2])) == (0, 1)
    assert default_pair(replace(some, methods=some.methods[:1], lanes=some.lanes[:1])) is None


def test_side_names_state_what_differs():
    one, other = (dict(LANES[m].header) for m in ("dflash", "d2sd"))
    assert side_names([[one], [other]]) == list(NAMES)
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


def test_runs_are_paired_by_prompt():
    assert partners(("x", "y"), ("y", "z")) == [(1, 0)]
    assert partners(("x",), ("y",)) == [(0, 0)]
    one, other = LANES["dflash"], LANES["d2sd"]
    pairs = list(side_by_side(made("a", one, one), made("b", other)))
    assert [len(pair["keys"]) for pair in pairs] == [2, 2]
    assert pairs[0]["prompt"] == one.prompt
    side = side_of(other)
    assert "".join(t for step in [side["lead"], *(s[1] for s in side["steps"])] for t, _ in step)
    assert [len(step[1]) for step in side["steps"]] == [len(step.committed) for step in other.steps]


@pytest.fixture
def session():
    session = Session()
    for lane in recorded_race().lanes:
        session.history.keep(RecordedRun.of(lane.trace.records()), "Race")
    return session


def test_lanes_are_chosen_and_open_at_a_step(session):
    drawn = json.loads(answered(choose_lanes, Ticket(), session, at=[1, 3])[0])
    assert drawn["pair"]["at"] == [1, 3]
    for at in ([1], [1, 99], "x", [1, "2"]):
        assert "no longer shown" in answered(choose_lanes, Ticket(), session, at=at)[1].value
    segment, tab, _ = answered(open_lane, session, session, lane=1, step=2)
    assert json.loads(segment.split("\n")[0])["wanted"]["step"] == 2
    assert tab.selected == "explore"


def test_ticked_runs_of_one_prompt_replace_the_race_and_back(session):
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


def test_times_of_runs_from_other_machines_are_not_compared(session):
    other = session.history.runs[1].run.trace()
    for hardware in ({"device": "cuda"}, {}):  # another machine, an unknown one
        away = replace(other, header={**other.header, "hardware": hardware, "run": str(hardware)})
        assert one_machine_of(other, away) is False
    keys = [session.history.runs[1].run.key, session.history.keep(RecordedRun.of(away.records()), "Opened").key]
    drawn = json.loads(answered(show_runs, Ticket(), session, keys=keys)[0])
    assert drawn["pair"]["more"] == OTHER_MACHINE
    assert [lane["row"]["place"] for lane in drawn["lanes"]] == [None, None]


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
    box, drawn, _ = answered(compare_sets, Ticket(), session, mine, "other prompts")
    assert (box.value, drawn) == ("", "")
    for key, method in zip(drawn_pair["keys"], ("dflash", "d2sd"), strict=True):
        answered(_open_side, session, session, mine, key=key, step=2)
        assert session.shown.header["method"] == method
    assert "no longer stored" in answered(_open_side, session, session, mine, key="gone", step=2, outputs=2)[2].value
    assert answered(compare_sets, Ticket(), session, Recordings(), "first")[1] == ""  # a measurement has begun
    assert json.loads(sets_drawing(made("a", LANES["d2sd"]), made("b", other)))["pairs"]


def test_unknown_lane_opens_nothing(session):
    with pytest.raises(InputError):
        open_lane(type("Call", (), {"data": {"lane": 99}})(), session)
