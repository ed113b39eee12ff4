"""Passes of fixed shapes, as CUDA graphs need them, give the texts of passes of any shape. Their caches and buffers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2sd import METHODS, DecodeConfig, Engine, InputError
from d2sd.config import MAX_NODES
from d2sd.nets.caches import KeyValueCache
from d2sd.nets.passes import ROWS, choose_mode, context_shape, row_shape


@pytest.fixture(scope="module")
def engine(engines):
    return engines("qwen3")


@pytest.fixture(scope="module")
def padded(engine):
    return Engine(engine.models, "padded")


@pytest.mark.parametrize("method", [m.id for m in METHODS.values() if not m.on_device])
def test_padded_passes_give_ids_of_eager_passes(engines, method):
    """Targets and backends alternate by method. Methods that run on the device are tested in test_device_cycle.py."""
    turn = list(METHODS).index(method)
    engine, (backend, longer) = engines(("qwen3", "llama")[turn % 2]), (("cascade", 6), ("dense", 11))[turn // 2 % 2]
    config = DecodeConfig(method, 10, block_size=6, second_block_size=longer, num_branches=3, backend=backend)
    prompt = ("the cat", [5])[turn // 2 % 2]
    plain, fixed = (e.generate(prompt, config) for e in (engine, Engine(engine.models, "padded")))
    assert fixed.token_ids == plain.token_ids
    assert [len(s.nodes) for s in fixed.steps] == [len(s.nodes) for s in plain.steps]


def test_pass_buffers_are_reused_by_all_methods(padded):
    padded._free.clear()
    config = DecodeConfig("d2sd", 12)
    text = padded.generate("the cat", config).token_ids
    ((_, lent),) = padded._free
    for method, tokens in (("d2sd", 120), ("d2sd_tree", 20), ("autoregressive", 200)):
        stream = padded.stream("a dog ran to", DecodeConfig(method, tokens))
        for _ in range(2):  # prefill and one step; the buffers have room for the whole text
            next(stream)
        stream.close()
        assert [passes for _, passes in padded._free] == [lent]
    assert padded.generate("the cat", config).token_ids == text  # the buffers keep nothing of the other texts


def test_interleaved_generations_do_not_share_pass_buffers(engine, padded):
    config, prompts = DecodeConfig("d2sd", 12), ("the cat", "a dog ran to")
    for used in (engine, padded):
        expected = [used.generate(p, config).token_ids for p in prompts]
        streams, last = [used.stream(p, config) for p in prompts], [None, None]
        for _ in range(40):
            for number, stream in enumerate(streams):
                last[number] = next(stream, None) or last[number]
        assert [list(e.token_ids) for e in last] == expected


def test_pass_buffers_return_after_stop_but_not_error(padded, monkeypatch):
    config = DecodeConfig("d2sd", 12)
    padded._free.clear()
    stream = padded.stream("the cat", config)
    next(stream)
    stream.close()
    assert len(padded._free) == 1

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(padded.models.target, "forward", full)
        with pytest.raises(torch.OutOfMemoryError):
            list(padded.stream("the cat", config))
    assert not padded._free
    assert padded.generate("the cat", config).token_ids


@given(st.lists(st.sets(st.integers(0, 7), min_size=1).map(sorted), max_size=5))
def test_cache_commit_keeps_chosen_rows_in_order(steps):
    cache = KeyValueCache.uniform(2, 1, 3, capacity=64, dtype=torch.float32, device=torch.device("cpu"))
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


def test_cache_refuses_writes_past_capacity():
    cache = KeyValueCache.uniform(1, 1, 2, capacity=4, dtype=torch.float32, device=torch.device("cpu"))
    with pytest.raises(ValueError, match="5 cache slots are needed, 4 were allocated"):
        cache.update(torch.zeros(1, 1, 5, 2), torch.zeros(1, 1, 5, 2), 0)
    with pytest.raises(ValueError, match="5 cache slots"):
        cache.views(5)


def test_choose_mode_depends_on_device_and_quantisation(engine, monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert choose_mode("auto", cpu, capturable=True) == "eager"
    assert choose_mode("auto", gpu, capturable=True) == "captured"
    assert choose_mode("auto", gpu, capturable=False) == "eager"
    for device, capturable in ((cpu, True), (gpu, False)):
        with pytest.raises(InputError, match=r"all models on one CUDA GPU.*not quantised"):
            choose_mode("captured", device, capturable)
    with pytest.raises(InputError, match="unknown kind of passes 'fast'"):
        choose_mode("fast", cpu, capturable=True)
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    assert choose_mode("auto", gpu, capturable=True) == "eager"
    assert engine.models.target.capturable
    monkeypatch.setattr(engine.models.target.model, "hf_quantizer", object(), raising=False)
    assert not engine.models.target.capturable
