"""Costs of stages: measurement, correction during a run, the file that keeps them, and machines."""

from __future__ import annotations

import gzip
import random
import threading
from contextlib import suppress

import pytest

from app import presets
from d2sd import DecodeConfig, StepDone
from d2sd.costs import kept
from d2sd.costs.machines import MACHINES, Curve, StageCosts, cycle
from d2sd.costs.runs import ThreadShare, plain_step, recording_machine, works_of
from d2sd.decoding import stage_times as measure
from d2sd.decoding.cost_aware import RunningCosts
from d2sd.errors import InputError
from d2sd.trace.events import StageSeconds
from d2sd.trace.metrics import Work
from d2sd.trace.trace import parse_trace
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
    seconds = measure._typical([*clean, *slow, *late])
    assert seconds["verify", 8] / seconds["verify", 1] == pytest.approx(2.1, rel=0.1)
    assert measure._steady([*clean, *slow, *clean])
    assert not measure._steady(clean[:3] + slow * 3)


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


TABLE = StageCosts(Curve(((2, 0.1), (8, 0.25))), Curve(((1, 0.0),)), Curve(((1, 1.0), (4, 1.5))), 0.05)


def test_kept_costs_are_found_by_key(tmp_path):
    file = tmp_path / "new" / "costs.json"
    assert kept.find(file, ["a", 1]) is None
    kept.keep_costs(file, ["a", 1], TABLE)
    plain = plain_step([StageSeconds(verify=1.0)] * 2, 70, "2026-01-02")[0]
    kept.keep_costs(file, ["b", 1], plain)
    assert kept.find(file, ["a", 1]) == TABLE
    assert kept.find(file, ["a", 2]) is None
    kept.keep_costs(file, ["a", 1], plain)
    assert kept.find(file, ["a", 1]) == kept.find(file, ["b", 1]) == plain  # with date and context
    assert {path.name for path in file.parent.iterdir()} - {"costs.json.lock"} == {"costs.json"}


def test_kept_costs_drop_oldest_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "MOST", 3)
    file = tmp_path / "costs.json"
    for number in range(5):
        kept.keep_costs(file, [number], TABLE)
    assert [kept.find(file, [number]) is not None for number in range(5)] == [False, False, True, True, True]


@pytest.mark.parametrize(
    "content",
    [
        "", "{", '[{"key": "a"}]', "[" * 5000, " " * (kept.MAX_BYTES + 1) + "[]",
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


DFLASH, D2SD, THIRD = Work(16, (), 16), Work(16, (64,), 80), Work(16, (64, 64), 144)


def test_paper_machine_has_published_cycles():
    paper = MACHINES["paper"]
    assert paper.plain_steps("dflash", [DFLASH]) == pytest.approx(5.31 / 4.16)
    assert paper.plain_steps("d2sd", [D2SD]) == pytest.approx(7.05 / 4.98)
    assert paper.plain_steps("eagle3", [Work(7, (), 60)]) == pytest.approx(5.91 / 3.80)
    published = [cycle("d2sd_three_level", data) for data in ("GSM8K", "MATH", "MBPP", "MT-Bench")]
    assert paper.plain_steps("d2sd_three_level", [THIRD]) == pytest.approx(sum(published) / 4, rel=0.04)


def test_curve_extrapolates_linearly_and_never_falls():
    curve = Curve.through([(16, 1.0), (1, 2.0), (32, 4.0)])
    assert [curve.seconds(n) for n in (0, 1, 8, 16, 24, 32, 48)] == [1, 1, 1, 1, 2.5, 4, 7]
    assert [curve.next_row(n) for n in (1, 16, 40)] == pytest.approx([0.0, 3 / 16, 3 / 16])
    slow_pass = Curve.through([(1, 1.0), (2, 9.0), (4, 1.2), (8, 1.6)])
    assert slow_pass.points == ((1, 1.0), (2, 1.2), (4, 1.2), (8, 1.6))


def test_curve_fitted_recovers_line_from_noise():
    rng = random.Random(0)
    points = [(n, (2.0 + 0.1 * n) * rng.gauss(1, 0.05)) for n in range(2, 65) for _ in range(20)]
    curve = Curve.fitted(points, (2, 16, 64))
    for rows in (2, 9, 16, 40, 64):
        assert curve.seconds(rows) == pytest.approx(2.0 + 0.1 * rows, rel=0.02)
    assert curve.next_row(2) == pytest.approx(0.1, rel=0.05)


def test_machine_has_no_price_for_unknown_drafter():
    chain = Work(16, (), 16)
    assert MACHINES["paper"].plain_steps("draft_model", [chain]) is None
    with pytest.raises(InputError, match="is unknown"):
        MACHINES["paper"].of("draft_model")
    sequential = StageCosts(
        Curve(((1, 1.0),)), Curve(((1, 1.0),)), Curve(((1, 2.0),)), drafts={"draft_model": Curve(((2, 1.0), (3, 2.0)))}
    )
    assert sequential.seconds("draft_model", chain) == 17  # fifteen sequential draft passes and one target pass


@pytest.mark.parametrize("table", [None, StageCosts(Curve(((4, 1.0), (16, 2.0))), Curve(((8, 1.0), (64, 4.0))), Curve(((1, 3.0), (64, 9.0))))])  # fmt: skip
def test_run_machine_reproduces_measured_speed(table):
    trace = parse_trace(gzip.decompress(presets.OPENING_TRACE.read_bytes()))
    machine = recording_machine(trace, 50.0, 40.0, table)
    tokens = sum(len(step.committed) for step in trace.steps)
    assert tokens / machine.plain_steps(trace.header["method"], works_of(trace)) == pytest.approx(40 / 50)
    assert machine.plain() == pytest.approx(1 / 50)
    assert recording_machine(trace, None, 40.0) is None


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
