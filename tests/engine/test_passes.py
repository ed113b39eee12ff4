"""Passes of fixed shapes, as CUDA graphs need them, give the same texts as passes of any shape."""

from __future__ import annotations

import pytest
import torch

from d2sd import METHODS, DecodeConfig, Engine, InputError
from d2sd.nets.passes import choose_mode


@pytest.fixture(scope="module")
def padded(engine):
    return Engine(engine.models, "padded")


@pytest.mark.parametrize("method", [m.id for m in METHODS.values() if not m.on_device])
def test_padded_passes_give_ids_of_eager_passes(engine, padded, method):
    """Backends alternate by target and method. Methods that run on the device are tested in test_device_cycle.py."""
    turn = (engine.models.target.config.model_type == "llama") + list(METHODS).index(method)
    prompt, backend, longer = (("the cat", "cascade", 6), ([5], "dense", 11))[turn % 2]
    config = DecodeConfig(method, 10, block_size=6, second_block_size=longer, num_branches=3, backend=backend)
    plain, fixed = engine.generate(prompt, config), padded.generate(prompt, config)
    assert fixed.token_ids == plain.token_ids
    assert [len(s.nodes) for s in fixed.steps] == [len(s.nodes) for s in plain.steps]


def test_pass_buffers_are_reused_by_next_generation(padded):
    config = DecodeConfig("d2sd", 12)
    first = padded.generate("the cat", config).token_ids
    lent = padded._free[-1][1]
    assert padded.generate("a dog ran to", config).token_ids != first
    assert padded._free[-1][1] is lent
    assert padded.generate("the cat", config).token_ids == first  # the buffers keep nothing of the other text


def test_pass_buffers_are_reused_by_other_methods(padded):
    padded._free.clear()
    padded.generate("the cat", DecodeConfig("autoregressive", 2))
    ((_, lent),) = padded._free
    for method, tokens in (("d2sd", 120), ("d2sd_tree", 20), ("autoregressive", 200)):
        stream = padded.stream("the cat", DecodeConfig(method, tokens))
        for _ in range(2):  # prefill and one step; the buffers have room for the whole text
            next(stream)
        stream.close()
        assert [passes for _, passes in padded._free] == [lent]


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
    with monkeypatch.context() as patch:
        patch.setenv("SPACES_ZERO_GPU", "true")
        assert choose_mode("auto", gpu, capturable=True) == "eager"
    assert engine.models.target.capturable
    monkeypatch.setattr(engine.models.target.model, "hf_quantizer", object(), raising=False)
    assert not engine.models.target.capturable
