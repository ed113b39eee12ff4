"""Stage costs: measurement, correction during a run, and the file that keeps them."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from d2sd import DecodeConfig, StepDone
from d2sd.costs import kept
from d2sd.costs.machines import Curve, StageCosts
from d2sd.costs.runs import ThreadShare, impossible, plain_step
from d2sd.decoding import stage_times as measure
from d2sd.decoding.cost_aware import RunningCosts
from d2sd.trace.events import StageSeconds
from tests.clocks import Ticking
from tests.unit.adaptive_world import CPU


def test_running_costs_follow_slowdown_and_ignore_outlier():
    costs = RunningCosts(CPU)
    costs.observe("verify", 1, 100 * CPU.verify.seconds(1))
    assert costs.plain() < 1.25 * CPU.plain()
    for _ in range(80):
        costs.observe("verify", 1, 2 * CPU.verify.seconds(1))
    assert costs.plain() == pytest.approx(2 * CPU.verify.seconds(1) + CPU.other, rel=0.05)
    assert costs.seconds("first_draft", 16) > 1.3 * CPU.first_draft.seconds(16)  # although only verify was observed


def test_running_costs_separate_stage_overhead_from_nodes():
    costs = RunningCosts(CPU)
    for _ in range(600):
        costs.observe("verify", 8, CPU.verify.seconds(8) + 2e-3)
        costs.observe("verify", 1, CPU.verify.seconds(1))
        costs.observe("first_draft", 8, CPU.first_draft.seconds(8))
    assert costs.seconds("verify", 8) == pytest.approx(CPU.verify.seconds(8) + 2e-3, rel=0.05)
    assert costs.seconds("verify", 1) == pytest.approx(CPU.verify.seconds(1), rel=0.05)
    assert costs.node(8) < 1.1 * CPU.verify.next_row(8)


def test_stage_times_typical_ignores_disturbed_rounds():
    clean = [{("verify", 1): [2.0, 2.2, 1.8], ("verify", 8): [4.0 + 0.01 * n]} for n in range(10)]
    slow = [{key: [3 * t for t in times] for key, times in clean[0].items()}]
    late = [{**clean[0], ("verify", 8): [40.0]}] * 3
    found = measure._typical([*clean, *slow, *late])
    assert found["verify", 8] / found["verify", 1] == pytest.approx(2.1, rel=0.1)


def test_stage_times_steady_if_halves_agree():
    def rounds(*factors):
        return [{("verify", 1): [2.0], ("verify", 8): [4.0 * factor]} for factor in factors]

    assert measure._steady(rounds(1.0, 1.1, 1.15, 1.05, 1.1, 1.0))
    assert not measure._steady(rounds(1.0, 1.0, 1.0, 1.4, 1.4, 1.4))
    assert not measure._steady(
        [
            {key: [1.5 * t for t in times] for key, times in r.items()} if n else r
            for n, r in enumerate(rounds(1.0, 1.0))
        ]
    )
    assert measure._steady(rounds(1.0, 1.0, 9.0, 1.0, 1.0, 1.0))  # one slow pass


def test_curve_through_ignores_single_slow_pass():
    assert Curve.through([(1, 1.0), (2, 9.0), (4, 1.2), (8, 1.6)]).points == ((1, 1.0), (2, 1.2), (4, 1.2), (8, 1.6))


def test_stage_times_follow_predecessors_in_shuffled_rounds(monkeypatch):
    calls, keys = [], [("verify", 1), ("verify", 8), ("verify", 16), ("first_draft", 4), ("second_draft", 16)]
    monkeypatch.setattr(measure, "ROUNDS", 3)
    rounds = measure._timed({key: (lambda key=key: calls.append(key)) for key in keys}, keys[1:])
    assert [set(times) for times in rounds] == [set(keys)] * 3  # plain passes and drafts are in every round
    pairs = list(zip(calls[::2], calls[1::2], strict=True))
    before = {"verify": "first_draft", "second_draft": "first_draft", "first_draft": "verify"}
    assert all(one == timed if timed == ("verify", 1) else one[0] == before[timed[0]] for one, timed in pairs)
    timed = [key for _, key in pairs][len(keys) :]
    assert len({tuple(timed[at : at + len(timed) // 3]) for at in range(0, len(timed), len(timed) // 3)}) > 1
    assert len(measure._timed(dict.fromkeys(keys, int), keys, Ticking(measure.SECONDS))) == 1


@pytest.mark.parametrize(("computed", "disturbed"), [(0.95, False), (0.85, True)])
def test_thread_share_is_measured_over_steps_only(computed, disturbed, bundled):
    wall, thread = Ticking(1.0), Ticking(computed)
    share = ThreadShare(wall, thread)
    assert not share.disturbed  # nothing has run

    def run():
        for event in bundled.stream("One day", DecodeConfig(max_new_tokens=8)):
            wall.now += 0 if isinstance(event, StepDone) else 99
            yield event

    events = run()
    while share.next(events):
        wall.now += 99  # time between two events does not count
    assert share.disturbed is disturbed


def test_plain_step_is_median_and_steady_if_halves_agree():
    times = [StageSeconds(verify=each, tree=0.5) for each in (1.0, 1.05, 9.0, 1.1, 1.0)]
    costs, steady = plain_step(times, 40, "2026-01-02")
    assert (costs.verify.seconds(1), costs.plain(), costs.measured, costs.context) == (1.05, 1.55, "2026-01-02", 40)
    assert steady
    assert not plain_step([StageSeconds(verify=each) for each in (1.0, 1.0, 1.2, 1.2)], 40, "2026-01-02")[1]


@pytest.mark.parametrize(("verified", "expected"), [(0.0, False), (0.8, True), (0.95, False), (3.0, False)])
def test_verifying_in_less_time_than_plain_pass_is_impossible(verified, expected):
    assert impossible(verified, 1.0) is expected


TABLE = StageCosts(Curve(((2, 0.1), (8, 0.25))), Curve(((1, 0.0),)), Curve(((1, 1.0), (4, 1.5))), 0.05)


def test_kept_costs_are_found_by_key(tmp_path):
    file = tmp_path / "new" / "costs.json"
    assert kept.find(file, ["a", 1]) is None
    kept.keep_costs(file, ["a", 1], TABLE)
    kept.keep_costs(file, ["b", 1], StageCosts(TABLE.verify, TABLE.verify, TABLE.verify))
    assert kept.find(file, ["a", 1]) == TABLE
    assert kept.find(file, ["a", 2]) is None
    kept.keep_costs(file, ["a", 1], StageCosts(TABLE.verify, TABLE.verify, TABLE.verify))
    assert kept.find(file, ["a", 1]) == kept.find(file, ["b", 1])
    assert {path.name for path in file.parent.iterdir()} - {"costs.json.lock"} == {"costs.json"}


def test_kept_costs_state_date_and_context_if_known(tmp_path):
    file, plain = tmp_path / "costs.json", plain_step([StageSeconds(verify=1.0)] * 2, 70, "2026-01-02")[0]
    older = '[{"key":"a","first_draft":[[1,0.0]],"second_draft":[[1,0.0]],"verify":[[1,1.0]],"other":0.5}]'
    file.write_text(older)
    kept.keep_costs(file, ["b"], plain)
    assert [(costs.measured, costs.context) for costs in (kept.find(file, ["a"]), kept.find(file, ["b"]))] == [
        ("", None),
        ("2026-01-02", 70),
    ]
    assert kept.find(file, ["b"]) == plain


def test_kept_costs_of_several_writers_all_stay(tmp_path, monkeypatch):
    file, read, meet = tmp_path / "costs.json", kept._tables, threading.Barrier(2)

    def slow(path):
        tables = read(path)
        with suppress(threading.BrokenBarrierError):  # without a lock, both would read before either writes
            meet.wait(0.5)
        return tables

    monkeypatch.setattr(kept, "_tables", slow)
    writers = [threading.Thread(target=kept.keep_costs, args=(file, [name], TABLE)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    monkeypatch.undo()
    assert [kept.find(file, [name]) for name in "ab"] == [TABLE, TABLE]


def test_kept_costs_delete_temporary_file_if_move_fails(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError("another program has it open")

    monkeypatch.setattr(kept.os, "replace", refused)
    kept.keep_costs(tmp_path / "costs.json", ["a"], TABLE)
    assert not {path.name for path in tmp_path.iterdir()} - {"costs.json.lock"}


def test_kept_costs_drop_oldest_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "MOST", 3)
    file = tmp_path / "costs.json"
    for number in range(5):
        kept.keep_costs(file, [number], TABLE)
    assert [kept.find(file, [number]) is not None for number in range(5)] == [False, False, True, True, True]


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[1]", '[{"key": "a"}]', "[" * 5000, " " * (kept.MAX_BYTES + 1) + "[]",
        '[{"key":"a","first_draft":[[1,-1.0]],"second_draft":[[1,0.0]],"verify":[[1,1.0]],"other":0.0}]',
        '[{"key":"a","first_draft":[],"second_draft":[[1,0.0]],"verify":[[1,1.0]],"other":0.0}]',
    ],
)  # fmt: skip
def test_kept_costs_replace_invalid_file(content, tmp_path):
    file = tmp_path / "costs.json"
    file.write_text(content)
    assert kept.find(file, ["a"]) is None
    kept.keep_costs(file, ["a"], TABLE)
    assert kept.find(file, ["a"]) == TABLE


def test_kept_costs_ignore_unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    kept.keep_costs(tmp_path / "file" / "costs.json", ["a"], TABLE)
    assert kept.find(tmp_path / "file" / "costs.json", ["a"]) is None
