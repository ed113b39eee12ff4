"""Tables of stage costs: machines by name, their curves, their correction by a run."""

from __future__ import annotations

import random

import pytest

from d2sd.costs.machines import Curve, machine_of
from d2sd.decoding import stage_times as measure
from d2sd.decoding.cost_aware import RunningCosts
from d2sd.errors import InputError
from d2sd.trace.metrics import Work
from tests.unit.adaptive_world import CPU


def test_a_known_machine_has_the_papers_ratios():
    table = machine_of("paper")
    assert table.plain() == pytest.approx(0.02)  # nominal, and said in its name
    assert "20 ms" in table.name
    assert table.plain_steps("d2sd", [Work(16, (64,), 80)]) == pytest.approx(7.05 / 4.98)
    assert table.plain_steps("dflash", [Work(16, (), 16)]) == pytest.approx(5.31 / 4.16)


def test_an_unknown_machine_is_refused_with_the_names_of_the_known_ones():
    with pytest.raises(InputError, match=r"there is no machine 'costs\.json'; choose one of: paper, h200-measured"):
        machine_of("costs.json")


def test_a_curve_goes_on_straight_and_never_falls():
    curve = Curve.through([(16, 1.0), (1, 2.0), (32, 4.0)])
    assert [curve.seconds(n) for n in (0, 1, 8, 16, 24, 32, 48)] == [2, 2, 2, 2, 3, 4, 6]
    assert [curve.next_row(n) for n in (1, 16, 40)] == pytest.approx([0.0, 1 / 8, 1 / 8])


def test_a_fitted_curve_is_the_line_behind_noisy_times():
    rng = random.Random(0)
    points = [(n, (2.0 + 0.1 * n) * rng.gauss(1, 0.05)) for n in range(2, 65) for _ in range(20)]
    curve = Curve.fitted(points, (2, 16, 64))
    for rows in (2, 9, 16, 40, 64):
        assert curve.seconds(rows) == pytest.approx(2.0 + 0.1 * rows, rel=0.02)
    assert curve.next_row(2) == pytest.approx(0.1, rel=0.05)


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
