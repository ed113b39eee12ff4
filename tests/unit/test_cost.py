"""How many nodes are worth their time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2sd import DecodeConfig, Engine
from d2sd.decoding.cost import MEASURED_SLOTS, VerifyCost, affordable, measure_verify_cost
from d2sd.passes.passes import Passes
from tests.conftest import make_target


@given(
    st.lists(st.floats(0, 1), max_size=12).map(lambda p: sorted(p, reverse=True)),
    st.floats(0.1, 10),
    st.floats(0.01, 5),
    st.floats(0, 10),
)
def test_the_count_is_the_best_of_all(reach, fixed, per_node, spent):
    cost = VerifyCost(fixed, per_node)
    rates = [(1 + sum(reach[:n])) / (spent + cost.seconds(1 + n)) for n in range(len(reach) + 1)]
    assert rates[affordable(reach, cost, spent)] == pytest.approx(max(rates))


@pytest.mark.parametrize("mode", ["eager", "padded"])
def test_measured_costs_are_positive(tokenizer, mode):
    cost = measure_verify_cost(make_target(tokenizer), Passes(mode, "dense", MEASURED_SLOTS, torch.device("cpu")))
    assert cost.per_node > 0
    assert cost.seconds(64) > 0


def test_costs_are_measured_once_while_nothing_else_computes(engine, monkeypatch):
    fresh, measured = Engine(engine.models), []

    def measure(*_):
        assert fresh.lock.locked()
        measured.append(time.sleep(0.05))
        return VerifyCost(1.0, 1.0)

    monkeypatch.setattr("d2sd.engine.measure_verify_cost", measure)
    config = DecodeConfig("dflash", 4, cost_aware=True)
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(lambda _: fresh.generate("the cat", config), range(2))
    assert one.token_ids == other.token_ids
    assert len(measured) == 1
