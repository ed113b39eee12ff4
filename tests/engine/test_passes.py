"""Passes of fixed shapes, as CUDA graphs need them, give the texts of passes of any shape. Their caches and buffers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2sd import DecodeConfig, Engine, InputError
from d2sd.config import MAX_NODES
from d2sd.nets.caches import KeyValueCache
from d2sd.nets.passes import ROWS, choose_mode, context_shape, row_shape


@pytest.fixture(scope="module")
def padded(engines):
    return Engine(engines("qwen3").models, "padded")


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


def test_interleaved_generations_do_not_share_pass_buffers(engines, padded):
    config, prompts = DecodeConfig("d2sd", 12), ("the cat", "a dog ran to")
    for used in (engines("qwen3"), padded):
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


@given(st.integers(1, MAX_NODES + 1), st.integers(1, 1 << 18))
def test_shapes_fit_any_node_budget_and_context(rows, slots):
    assert row_shape(rows) == min(shape for shape in ROWS if shape >= rows)
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


def test_choose_mode_depends_on_device_and_quantisation(padded, monkeypatch):
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
    target = padded.models.target
    assert target.capturable
    monkeypatch.setattr(target.model, "hf_quantizer", object(), raising=False)
    assert not target.capturable
