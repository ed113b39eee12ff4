"""Stage costs as they are measured, and their correction by a run."""

from __future__ import annotations

import pytest

from d2sd.decoding import stage_times as measure
from d2sd.decoding.cost_aware import RunningCosts
from tests.unit.adaptive_world import CPU


def test_a_machine_that_slows_down_is_followed_and_one_late_pass_changes_little():
    costs = RunningCosts(CPU)
    costs.observe("verify", 1, 100 * CPU.verify.seconds(1))
    assert costs.plain() < 1.25 * CPU.plain()
    for _ in range(80):
        costs.observe("verify", 1, 2 * CPU.verify.seconds(1))
    assert costs.plain() == pytest.approx(2 * CPU.verify.seconds(1) + CPU.other, rel=0.05)
    assert costs.seconds("first_draft", 16) > 1.3 * CPU.first_draft.seconds(16)  # though none was drafted since


def test_the_overhead_of_a_stage_is_its_own_and_does_not_make_its_nodes_dearer():
    costs = RunningCosts(CPU)
    for _ in range(600):
        costs.observe("verify", 8, CPU.verify.seconds(8) + 2e-3)
        costs.observe("verify", 1, CPU.verify.seconds(1))
        costs.observe("first_draft", 8, CPU.first_draft.seconds(8))
    assert costs.seconds("verify", 8) == pytest.approx(CPU.verify.seconds(8) + 2e-3, rel=0.05)
    assert costs.seconds("verify", 1) == pytest.approx(CPU.verify.seconds(1), rel=0.05)
    assert costs.node(8) < 1.1 * CPU.verify.next_row(8)


def test_rounds_and_passes_that_were_disturbed_do_not_change_how_costs_compare():
    clean = [{("verify", 1): [2.0, 2.2, 1.8], ("verify", 8): [4.0 + 0.01 * n]} for n in range(10)]
    slow = [{key: [3 * t for t in times] for key, times in clean[0].items()}]
    late = [{**clean[0], ("verify", 8): [40.0]}] * 3
    found = measure._typical([*clean, *slow, *late])
    assert found["verify", 8] / found["verify", 1] == pytest.approx(2.1, rel=0.1)


def test_passes_are_timed_after_what_they_follow_in_a_run_in_a_new_order_every_round(monkeypatch):
    calls, keys = [], [("verify", 1), ("verify", 8), ("verify", 16), ("first_draft", 4), ("second_draft", 16)]
    monkeypatch.setattr(measure, "ROUNDS", 3)
    rounds = measure._timed({key: (lambda key=key: calls.append(key)) for key in keys}, keys[1:])
    assert [set(times) for times in rounds] == [set(keys)] * 3  # plain passes and drafts are in every round
    pairs = list(zip(calls[::2], calls[1::2], strict=True))
    before = {"verify": "first_draft", "second_draft": "first_draft", "first_draft": "verify"}
    assert all(one == timed if timed == ("verify", 1) else one[0] == before[timed[0]] for one, timed in pairs)
    timed = [key for _, key in pairs][len(keys) :]
    assert len({tuple(timed[at : at + len(timed) // 3]) for at in range(0, len(timed), len(timed) // 3)}) > 1
    monkeypatch.setattr(measure, "SECONDS", 0.0)
    assert len(measure._timed(dict.fromkeys(keys, int), keys)) == 1
