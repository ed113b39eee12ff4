"""Calibration of the second drafter, and of the first drafter by group of prompts."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from d2sd.calibration import Estimate, read_report
from d2sd.trace.events import Committed, Draft
from tests.unit.steps import calibrated, made_step, simulated, statistics_of


def redraft(prefix, ids, confidence, base=0, drafter="second"):
    n = len(ids)
    return Draft(drafter, prefix, tuple(ids), ("a",) * n, tuple(confidence), ((),) * n, base)


def step_with(branches, wrote, ids=(11, 12, 13), boundary=1):
    step = made_step([0.9] * len(ids), boundary, (0, 1))
    return replace(
        step,
        first_draft=replace(step.first_draft, ids=ids),
        branches=tuple(branches),
        committed=tuple(Committed(t, "a", "first", None) for t in wrote),
    )


def redrafted(step):
    """Whether the prefix of each re-draft is right, and the scored tokens of the re-drafts."""
    tables = statistics_of([[step]]).counted()
    return tables.right.tolist(), tables.redrafted


def test_redrafts_are_scored_up_to_first_wrong_token():
    wrote = (11, 22, 23, 24)
    step = step_with([redraft(1, (22, 23, 99, 98), (0.9, 0.8, 0.7, 0.6)), redraft(2, (23,), (0.5,))], wrote)
    right, scores = redrafted(step)
    assert right == [True, False]
    assert scores.position.tolist() == [1, 2, 3]
    assert scores.confidence.tolist() == [0.9, 0.8, 0.7]
    assert scores.accepted.tolist() == [1, 1, 0]


def test_redrafted_tokens_after_text_end_are_not_scored():
    _, scores = redrafted(step_with([redraft(1, (22, 23), (0.9, 0.8))], (11, 22)))
    assert scores.position.tolist() == [1]
    assert redrafted(step_with([redraft(1, (22,), (0.9,))], (11,)))[0] == [False]


def test_redraft_continues_prefix_of_its_base():
    branches = [redraft(1, (22, 23), (1, 1)), redraft(2, (33,), (1,), base=1)]
    assert redrafted(step_with(branches, (11, 22, 33, 4)))[0] == [True, True]
    assert redrafted(step_with(branches, (11, 12, 33, 4)))[0] == [True, False]
    chain = [redraft(0, (11,), (0.9,), base=n) for n in range(1000)]  # is followed without recursion
    assert redrafted(step_with(chain, (11, 2)))[0] == [True] * 1000


def test_calibrate_excludes_resampled_drafts_from_second_drafter():
    assert calibrated([[step_with([redraft(0, (11,), (0.9,), drafter="first")], (11, 2))]]).second is None


def test_calibrate_groups_partition_positions():
    runs = simulated(10, 8)
    report = calibrated(runs, domains=["story"] * 5 + ["sum"] * 5)
    assert [g.name for g in report.domains] == ["story", "sum"]
    assert sum(g.positions for g in report.domains) == report.positions
    assert calibrated(runs).domains == ()
    story, _ = report.domains
    alone = calibrated(runs[:5])
    assert story.tokens.value == pytest.approx(alone.gains.tokens_per_step.value)
    assert story.accepted == pytest.approx(alone.accepted)


def test_calibrate_group_with_few_prompts_lacks_interval():
    few, many = calibrated(simulated(10, 8), domains=["rare"] * 2 + ["usual"] * 8).domains
    assert (few.gap.low, few.gap.high) == (None, None)
    assert many.gap.low < many.gap.value < many.gap.high


def test_calibrate_reports_second_drafter_given_enough_tokens():
    step = step_with([redraft(1, (22, 23, 99), (0.9, 0.8, 0.7))], (11, 22, 23, 24))

    def said(report):
        return [s.text for s in read_report(report)]

    many = calibrated([[step] * 12] * 9)
    assert (many.second.redrafts, many.second.right, many.second.positions) == (108, 108, 324)
    assert many.second.accepted == pytest.approx(2 / 3)
    assert sum(b.count for b in many.second.uniform) == 324
    assert any(
        s.startswith("The second drafter is far over-confident: mean confidence 80%, accepted 67%") for s in said(many)
    )
    assert any(s.startswith("Too few tokens to judge the second drafter") for s in said(calibrated([[step] * 12] * 2)))
    for gap, word in ((-0.022, "slightly over"), (0.029, "slightly under"), (0.031, "under"), (-0.12, "far over")):
        found = Estimate(gap, gap - 0.001, gap + 0.001)
        second = dataclasses.replace(many.second, gap=found)
        both = said(dataclasses.replace(many, gap=found, second=second))
        assert [
            s.partition(" is ")[2].partition("-conf")[0] for s in both if s[:4] == "The " and "-confident:" in s
        ] == [word] * 2
    without = calibrated([[replace(step, branches=())] * 12] * 9)
    assert without.second is None
    assert not any("second drafter" in s for s in said(without))
