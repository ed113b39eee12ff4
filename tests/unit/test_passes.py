"""Caches, fixed shapes and captures of the models' passes."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2sd.config import MAX_NODES
from d2sd.nets.caches import KeyValueCache
from d2sd.nets.passes import ROWS, PassRecorder, context_shape, row_shape

CPU = torch.device("cpu")


@given(st.lists(st.sets(st.integers(0, 7), min_size=1).map(sorted), max_size=5))
def test_cache_commit_keeps_chosen_rows_in_order(steps):
    cache = KeyValueCache.uniform(2, 1, 3, capacity=64, dtype=torch.float32, device=CPU)
    expected = torch.zeros(0)
    for number, rows in enumerate(steps):
        fresh = torch.arange(8.0) + 100 * number
        for layer in range(2):
            keys, values = cache.update(fresh.view(1, 1, 8, 1).expand(1, 1, 8, 3), -fresh.view(1, 1, 8, 1), layer)
            assert keys.shape[2] == values.shape[2] == len(expected) + 8
        cache.commit(rows)
        expected = torch.cat([expected, fresh[rows]])
        for layer in range(2):
            keys, values = cache.layer(layer)
            assert torch.equal(keys[0, 0, :, 0], expected)
            assert torch.equal(values[0, 0, :, 1], -expected)


def test_cache_refuses_writes_past_capacity():
    cache = KeyValueCache.uniform(1, 1, 2, capacity=4, dtype=torch.float32, device=CPU)
    with pytest.raises(ValueError, match="5 cache slots"):
        cache.update(torch.zeros(1, 1, 5, 2), torch.zeros(1, 1, 5, 2), 0)


def test_cache_keeps_layers_on_their_devices():
    homes = {layer: torch.device(name) for layer, name in enumerate(("cpu", "meta", "cpu"))}
    cache = KeyValueCache(dict.fromkeys(homes, (1, 2)), capacity=8, dtype=torch.float32, homes=homes)
    for layer, home in homes.items():
        rows = torch.full((1, 1, 3, 2), float(layer), device=home)
        keys, values = cache.update(rows, rows, layer)
        assert keys.device == values.device == home
    cache.commit([0, 2])
    assert cache.layer(0)[0].eq(0).all()
    assert cache.layer(2)[0].eq(2).all()
    assert cache.layer(1)[1].shape == (1, 1, 2, 2)


@given(st.integers(1, MAX_NODES + 1))
def test_row_shape_fits_any_node_budget(rows):
    shape = row_shape(rows)
    assert shape in ROWS
    assert rows <= shape
    assert all(other < rows for other in ROWS if other < shape)
    assert row_shape(1) == 1


@given(st.integers(1, 1 << 18))
def test_context_shape_grows_by_at_most_a_quarter(slots):
    shape = context_shape(slots)
    assert slots <= shape <= max(slots + 255, slots * 1.25)
    assert context_shape(shape) == shape
    assert len({context_shape(n) for n in range(1, 32769, 64)}) <= 32


@pytest.fixture
def recorder(monkeypatch):
    """A recorder with stubs for streams and graphs; ``streams``: streams that were made current again."""
    made = PassRecorder(CPU)
    made.streams = []
    current = SimpleNamespace(wait_stream=lambda _: None)
    for name, stub in {
        "device": nullcontext,
        "Stream": lambda _: SimpleNamespace(wait_stream=lambda _: None),
        "stream": nullcontext,
        "graph_pool_handle": object,
        "current_stream": lambda: current,
        "set_stream": made.streams.append,
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
        "graph": lambda *_, **__: nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stub)
    made.current = current
    return made


def test_recorder_restores_stream_after_failed_capture(recorder):
    runs = []

    def third_time_fails():
        runs.append(1)
        if len(runs) == 3:
            raise RuntimeError("operation not permitted when stream is capturing")
        return ()

    with pytest.raises(RuntimeError, match="not permitted"):
        recorder.capture(third_time_fails, ())
    assert recorder.streams == [recorder.current]
    assert recorder.capture(lambda: (), ()).outputs == ()  # later captures work
