"""Tables of stage costs: their file, their curves."""

from __future__ import annotations

import random
from math import exp, inf
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2sd.decoding.costs import CHOICES, CostTable, Curve, RunningCosts, read_costs
from d2sd.errors import InputError
from tests.unit.adaptive_world import CPU

GOOD = {
    "machine": "a card",
    "milliseconds": {
        "verify": [[1, 22.0], [64, 23.0]],
        "first_draft": [[16, 4.5]],
        "second_draft": [[16, 4.5], [64, 4.9]],
        "other": 0.5,
    },
}


def written(tmp_path, data):
    path = tmp_path / "costs.json"
    path.write_bytes(data if isinstance(data, bytes) else orjson.dumps(data))
    return str(path)


def test_a_file_is_read_and_written_alike(tmp_path):
    table = read_costs(written(tmp_path, GOOD))
    assert table.plain() == pytest.approx(0.0225)
    assert table.verify.seconds(64) == pytest.approx(0.023)
    assert table.to_dict() == GOOD


def test_the_ratio_of_the_paper_is_that_of_its_file():
    table = read_costs(str(Path(__file__).parents[2] / "docs" / "costs-paper.json"))
    cycle = table.first_draft.seconds(16) + table.second_draft.seconds(64) + table.verify.seconds(80)
    assert cycle / table.plain() == pytest.approx(1.42)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"verify": []}, "1 to 64 points"),
        ({"verify": [[1, 0.0]]}, "must take time"),
        ({"verify": [[8, 2.0], [1, 3.0]]}, "ascend"),
        ({"verify": [[1, 3.0], [8, 2.0]]}, "must not fall"),
        ({"first_draft": [[1.5, 3.0]]}, "pairs"),
        ({"first_draft": [[1, "3"]]}, "number of milliseconds"),
        ({"first_draft": [[1, -1]]}, "between 0 and"),
        ({"other": True}, "number of milliseconds"),
        ({"verfy": [[1, 1.0]]}, "none of its stages"),
    ],
)
def test_what_cannot_be_a_table_is_refused_with_its_reason(tmp_path, change, words):
    with pytest.raises(InputError, match=words) as refused:
        read_costs(written(tmp_path, GOOD | {"milliseconds": GOOD["milliseconds"] | change}))
    assert "Its form:" in str(refused.value)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b'{"machine": "x"}', b"[" * 1000, b" " * 70_000])
def test_other_files_are_refused(tmp_path, data):
    with pytest.raises(InputError):
        read_costs(written(tmp_path, data))


def test_a_missing_file_is_named():
    with pytest.raises(InputError, match=r"nowhere\.json"):
        read_costs("nowhere.json")


def test_a_curve_goes_on_straight_and_never_falls():
    curve = Curve.through([(16, 1.0), (1, 2.0), (32, 4.0)])
    assert [curve.seconds(n) for n in (0, 1, 8, 16, 24, 32, 48)] == [1.5, 1.5, 1.5, 1.5, 2.75, 4, 6.5]
    assert CostTable(Curve(((1, 0.0),)), Curve(((1, 0.0),)), curve, 0.5).plain() == 2.0


def test_a_fitted_curve_is_the_line_behind_noisy_times():
    rng = random.Random(0)
    points = [(n, (2.0 + 0.1 * n) * rng.gauss(1, 0.05)) for n in range(2, 65) for _ in range(20)]
    curve = Curve.fitted(points, (2, 16, 64))
    assert [rows for rows, _ in curve.points] == [2, 16, 64]
    for rows in (2, 9, 16, 40, 64):
        assert curve.seconds(rows) == pytest.approx(2.0 + 0.1 * rows, rel=0.02)
    whole = Curve(((1, 1.5), *curve.points))
    assert exp(RunningCosts(CostTable(curve, curve, whole)).joining[2]) == pytest.approx(0.1, rel=0.05)


@given(st.lists(st.floats(0, 2), min_size=2, max_size=12), st.sampled_from(CHOICES[:30]))
def test_a_node_that_joins_takes_the_least_of_all_mean_times(steps, nodes):
    """The least seconds a node, over all larger trees."""
    points = [(1, 1.0)]
    for n, step in enumerate(steps):
        points.append((points[-1][0] + 1 + n % 5, points[-1][1] + step))
    curve = Curve(tuple(points))
    costs = RunningCosts(CostTable(curve, curve, curve))
    times = costs.by_nodes
    least = min((times[n] - times[nodes]) / (n - nodes) for n in range(nodes + 1, len(times)))
    assert exp(costs.joining[nodes]) == pytest.approx(least, abs=1e-9)
    assert costs.joining[3] == costs.joining[11] == -inf


def test_a_machine_that_slows_down_is_followed():
    costs = RunningCosts(CPU)
    for _ in range(60):
        costs.observe("verify", 1, 2 * CPU.verify.seconds(1))
    assert costs.plain() == pytest.approx(2 * CPU.verify.seconds(1) + CPU.other, rel=0.05)
    assert costs.seconds("first_draft", 16) > 1.3 * CPU.first_draft.seconds(16)  # though none was drafted since


def test_the_overhead_of_a_stage_does_not_make_its_nodes_dearer():
    costs = RunningCosts(CPU)
    for _ in range(60):
        for stage, extra in (("verify", 1e-3), ("first_draft", 0.0)):
            costs.observe(stage, 8, CPU.curve(stage).seconds(8) + extra)
    assert costs.seconds("verify", 8) == pytest.approx(CPU.verify.seconds(8) + 1e-3, rel=0.02)
    assert costs.slowdown < 1 + 0.6 * 1e-3 / CPU.verify.seconds(8)


def test_one_late_pass_changes_little():
    costs = RunningCosts(CPU)
    costs.observe("verify", 1, 100 * CPU.verify.seconds(1))
    assert costs.plain() < 1.25 * CPU.plain()


def test_plain_passes_are_learnt_apart_from_trees():
    costs = RunningCosts(CPU)
    for _ in range(400):
        costs.observe("verify", 1, CPU.verify.seconds(1))
        costs.observe("verify", 8, 1.5 * CPU.verify.seconds(8))
    assert costs.seconds("verify", 1) == pytest.approx(CPU.verify.seconds(1), rel=0.05)
    assert costs.seconds("verify", 8) == pytest.approx(1.5 * CPU.verify.seconds(8), rel=0.05)
