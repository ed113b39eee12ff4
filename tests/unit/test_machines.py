"""Machines: curves, sources, agreement between machines, and the machine of a recorded run."""

from __future__ import annotations

import gzip
import random

import pytest

from app import presets
from d2sd.costs.machines import MACHINES, Curve, StageCosts, cycle, machine_of
from d2sd.costs.runs import recording_machine, works_of
from d2sd.errors import InputError
from d2sd.trace.metrics import Work
from d2sd.trace.trace import parse_trace

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


def test_curve_fitted_recovers_line_from_noise():
    rng = random.Random(0)
    points = [(n, (2.0 + 0.1 * n) * rng.gauss(1, 0.05)) for n in range(2, 65) for _ in range(20)]
    curve = Curve.fitted(points, (2, 16, 64))
    for rows in (2, 9, 16, 40, 64):
        assert curve.seconds(rows) == pytest.approx(2.0 + 0.1 * rows, rel=0.02)
    assert curve.next_row(2) == pytest.approx(0.1, rel=0.05)


def test_machine_of_finds_machine_or_refuses_name():
    table = machine_of("paper")
    assert table.plain() == pytest.approx(0.02)  # a nominal value, as its source states
    assert "20 ms" in table.source
    with pytest.raises(InputError, match=r"there is no machine 'costs\.json'; choose one of: paper, h200-measured"):
        machine_of("costs.json")


def test_machines_name_source_and_price_steps():
    for machine in MACHINES.values():
        assert machine.source.endswith(".")
        assert machine.plain_steps("autoregressive", [Work(0, (), 1)]) == pytest.approx(1.0)
        assert 1.0 < machine.plain_steps("dflash", [DFLASH]) < machine.plain_steps("d2sd", [D2SD])


def test_machine_has_no_price_for_unknown_drafter():
    chain = Work(16, (), 16)
    assert MACHINES["paper"].plain_steps("draft_model", [chain]) is None
    with pytest.raises(InputError, match="is unknown"):
        MACHINES["paper"].of("draft_model")
    sequential = StageCosts(
        Curve(((1, 1.0),)), Curve(((1, 1.0),)), Curve(((1, 2.0),)), drafts={"draft_model": Curve(((2, 1.0), (3, 2.0)))}
    )
    assert sequential.seconds("draft_model", chain) == 17  # fifteen sequential draft passes and one target pass
    assert sequential.of("draft_model").seconds("draft_model", chain) == 17


@pytest.mark.parametrize("table", [None, StageCosts(Curve(((4, 1.0), (16, 2.0))), Curve(((8, 1.0), (64, 4.0))), Curve(((1, 3.0), (64, 9.0))))])  # fmt: skip
def test_run_machine_reproduces_measured_speed(table):
    trace = parse_trace(gzip.decompress(presets.OPENING_TRACE.read_bytes()))
    machine = recording_machine(trace, 50.0, 40.0, table)
    tokens = sum(len(step.committed) for step in trace.steps)
    assert tokens / machine.plain_steps(trace.header["method"], works_of(trace)) == pytest.approx(40 / 50)
    assert machine.plain() == pytest.approx(1 / 50)
    assert recording_machine(trace, None, 40.0) is None
