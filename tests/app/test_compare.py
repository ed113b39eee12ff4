"""Comparing the runs of a window: sides, pairs of texts, and steps that open in Explore."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app import presets
from app.compare.tab import add_files, choices, comparison_drawing, offer, open_step, partners, pick, show_comparison
from app.jobs import Ticket
from app.race.run import recorded_race
from app.runs.recordings import Recording, RunSet
from app.runs.view import about
from app.session import Session
from d2sd import InputError
from d2sd.trace.run import RecordedRun
from tests.app.event import answered


@pytest.fixture
def session():
    session = Session()
    for lane in recorded_race().lanes:
        session.history.keep(RecordedRun.of(lane.trace.records()), "Race")
    return session


def names(session):
    return [name for _, name in choices(session.history)]


def test_compare_preselects_two_newest_runs(session):
    a, b = offer(session, None, None)
    assert (a.value, b.value) == (names(session)[1], names(session)[0])
    assert [box.value for box in offer(session, b.value, None)] == [b.value, names(session)[1]]


def test_compare_opens_with_two_lanes_of_recorded_race():
    boxes = offer(Session(), None, None)
    assert [box.value for box in boxes] == ["lane dflash", "lane d2sd"]
    drawn = json.loads(answered(show_comparison, Ticket(), Session(), *(box.value for box in boxes))[0])
    assert drawn["short"][0] == "B commits 3.3 more tokens per step."
    assert drawn["titles"] == ["Recorded race: DFlash", "Recorded race: D²SD"]


def test_compare_offers_only_runs_of_common_prompts():
    session = Session()
    one, other = (lane.trace for lane in recorded_race().lanes[:2])
    for prompt, trace in (("x", one), ("y", other), ("x", other)):
        session.history.keep(
            RecordedRun.of(replace(trace, header={**trace.header, "prompt": prompt}).records()), "Explore"
        )
    newest, lone, oldest = (f"run {kept.run.key}" for kept in session.history.runs)
    a, b = offer(session, None, None)
    assert {a.value, b.value} == {newest, oldest}
    assert lone not in [name for _, name in a.choices]
    assert [name for _, name in b.choices] == [oldest if a.value == newest else newest]
    assert offer(session, lone, None)[0].value != lone


def test_compare_pairs_greedy_race_methods_by_text(session):
    drawn = json.loads(answered(show_comparison, Ticket(), session, *names(session)[:2])[0])
    assert drawn["comparison"]["paired"]
    assert drawn["comparison"]["unit"].startswith("block of")
    (pair,) = drawn["pairs"]
    assert pair["differs_at"] is None
    for side, lead in zip(pair["sides"], pair["leads"], strict=True):
        assert lead
        ends = [step[0] for step in side]
        assert ends == sorted(ends)
        assert ends[-1] == len(lead + "".join(t for step in side for t, _ in step[1]))


def test_compare_figure_says_too_few_steps(session):
    whole = session.history.runs[0].run.trace()
    sides = [RunSet.of(name, [replace(whole, steps=whole.steps[:2], finished=None)]) for name in "AB"]
    drawn = json.loads(comparison_drawing(*sides))
    assert drawn["short"][0] == "Too few steps for a comparison."
    figure = drawn["panel"]["figure"]
    assert "too few steps" in figure["layout"]["annotations"][0]["text"]
    assert not any(trace["x"] for trace in figure["data"])


def test_compare_missing_choice_is_one_sentence(session):
    assert "no two runs" in answered(show_comparison, Ticket(), session, None, None)[1].value
    assert "still in the list" in answered(show_comparison, Ticket(), session, "run gone", "set gone")[1].value
    with pytest.raises(InputError):
        pick(session.history, "magic")


def test_add_files_makes_set_and_names_bad_files(session, tmp_path):
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text("\n".join([*presets.opening().lines(), ""]), encoding="utf-8")
    bad.write_text("no trace", encoding="utf-8")
    assert "Choose one or more trace files" in add_files(session, None, None, None)[-1].value
    *boxes, notice = add_files(session, [str(good), str(bad)], None, None)
    assert "bad.jsonl was not read" in notice.value
    label, name = boxes[0].choices[0]
    assert label == f"Set: good.jsonl ({about(presets.opening().header)})"  # what it was made with
    assert about(presets.opening().header).startswith("D²SD on ")
    assert name == "set good.jsonl"
    drawn = json.loads(answered(show_comparison, Ticket(), session, "set good.jsonl", "set good.jsonl")[0])
    assert drawn["titles"] == [label.removeprefix("Set: ")] * 2
    assert "No file could be read" in add_files(session, [str(bad)], None, None)[-1].value


def test_compare_claims_nothing_of_equal_sides():
    lane = recorded_race().lanes[2].trace
    title, figures = json.loads(comparison_drawing(RunSet.of("a", [lane]), RunSet.of("b", [lane])))["short"]
    assert title == "No difference beyond chance."
    assert figures.startswith("Tokens per step α: 4.58 → 4.58")


def test_compare_matches_set_runs_by_prompt():
    one, other = (lane.trace for lane in recorded_race().lanes[:2])
    assert partners(("x", "y"), ("y", "z")) == [(1, 0)]
    assert partners(("x",), ("y",)) == [(0, 0)]
    drawn = json.loads(comparison_drawing(RunSet.of("a", [one, one]), RunSet.of("b", [other])))
    assert [pair["runs"] for pair in drawn["pairs"]] == [[0, 0], [1, 0]]


def test_compare_step_opens_in_explore(session):
    a, b = names(session)[:2]
    segment, tab, _ = answered(open_step, session, session, a, b, side=1, run=0, step=2)
    assert json.loads(segment.split("\n")[0])["wanted"]["step"] == 2
    assert f"run {session.shown.key}" == b
    assert tab.selected == "explore"
    session.history.keep_set("mine", [Recording.of(presets.opening().trace())])
    answered(open_step, session, session, "set mine", b, side=0, run=0, step=0)
    assert session.shown.header["run"] == presets.opening().header["run"]
    assert (
        "no longer stored"
        in answered(open_step, session, session, "set mine", b, side=0, run=9, step=0, outputs=2)[2].value
    )
