"""The second drafter's confidence, and the first one's by prompt group."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from d2sd.calibration import Estimate, read_report
from d2sd.calibration.report import calibrate_steps
from d2sd.calibration.steps import candidates, tabulate, tabulate_redrafts
from d2sd.trace.events import Committed, Draft
from tests.unit.steps import made_step, simulated


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


def test_tabulate_redrafts_scores_up_to_first_wrong_token():
    wrote = (11, 22, 23, 24)
    step = step_with([redraft(1, (22, 23, 99, 98), (0.9, 0.8, 0.7, 0.6)), redraft(2, (23,), (0.5,))], wrote)
    found = tabulate_redrafts([[step]])
    assert found.right.tolist() == [True, False]
    assert found.position.tolist() == [1, 2, 3]
    assert found.confidence.tolist() == [0.9, 0.8, 0.7]
    assert found.accepted.tolist() == [1, 1, 0]


def test_tabulate_redrafts_ignores_tokens_after_text_end():
    step = step_with([redraft(1, (22, 23), (0.9, 0.8))], (11, 22))
    found = tabulate_redrafts([[step]])
    assert found.position.tolist() == [1]
    cut = step_with([redraft(1, (22,), (0.9,))], (11,))
    assert not tabulate_redrafts([[cut]]).right.any()


def test_candidates_extend_prefix_of_base_redraft():
    step = step_with([redraft(1, (22, 23), (1, 1)), redraft(2, (33,), (1,), base=1)], (11, 22, 33, 4))
    assert candidates(step)[2] == (11, 22, 33)
    found = tabulate_redrafts([[step]])
    assert found.right.tolist() == [True, True]


def test_candidates_follow_long_chain_without_recursion():
    chain = [redraft(0, (11,), (0.9,), base=n) for n in range(1000)]
    step = step_with(chain, (11, 2))
    assert len(candidates(step)) == 1001
    assert tabulate_redrafts([[step]]).right.all()


def test_calibrate_excludes_resampled_drafts_from_second_drafter():
    step = step_with([redraft(0, (11,), (0.9,), drafter="first")], (11, 2))
    assert calibrate_steps(tabulate([[step]]), redrafts=tabulate_redrafts([[step]])).second is None


def test_calibrate_groups_partition_positions():
    runs = simulated(10, 8)
    table = tabulate(runs)
    report = calibrate_steps(table, domains=["story"] * 5 + ["sum"] * 5)
    assert [g.name for g in report.domains] == ["story", "sum"]
    assert sum(g.positions for g in report.domains) == report.positions
    assert calibrate_steps(table, domains=["all"] * 10).domains == ()
    story, _ = report.domains
    alone = tabulate(runs[:5])
    assert story.tokens.value == pytest.approx(alone.committed.mean())
    assert story.accepted == pytest.approx(calibrate_steps(alone).accepted)


def test_calibrate_group_with_few_prompts_lacks_interval():
    runs = simulated(10, 8)
    table = tabulate(runs)
    few, many = calibrate_steps(table, domains=["rare"] * 2 + ["usual"] * 8).domains
    assert (few.gap.low, few.gap.high) == (None, None)
    assert many.gap.low < many.gap.value < many.gap.high


def test_calibrate_reports_second_drafter_given_enough_tokens():
    step = step_with([redraft(1, (22, 23, 99), (0.9, 0.8, 0.7))], (11, 22, 23, 24))

    def report(runs):
        return calibrate_steps(tabulate(runs), redrafts=tabulate_redrafts(runs))

    def said(report):
        return [s.text for s in read_report(report)]

    many = report([[step] * 12] * 9)
    assert (many.second.redrafts, many.second.right, many.second.positions) == (108, 108, 324)
    assert many.second.accepted == pytest.approx(2 / 3)
    assert sum(b.count for b in many.second.uniform) == 324
    assert any(
        s.startswith("The second drafter is far over-confident: mean confidence 80%, accepted 67%") for s in said(many)
    )
    assert any(s.startswith("Too few tokens to judge the second drafter") for s in said(report([[step] * 12] * 2)))
    for gap, word in ((-0.022, "slightly over"), (0.029, "slightly under"), (0.031, "under"), (-0.12, "far over")):
        found = Estimate(gap, gap - 0.001, gap + 0.001)
        second = dataclasses.replace(many.second, gap=found)
        both = said(dataclasses.replace(many, gap=found, second=second))
        assert [
            s.partition(" is ")[2].partition("-conf")[0] for s in both if s[:4] == "The " and "-confident:" in s
        ] == [word] * 2
    without = calibrate_steps(tabulate([[step] * 12] * 9))
    assert without.second is None
    assert not any("second drafter" in s for s in said(without))
