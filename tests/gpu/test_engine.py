"""The whole engine on a GPU: the CPU's texts, no memory leaks, and one sentence if memory runs out."""

from __future__ import annotations

import gc
from contextlib import suppress

import pytest
import torch

from d2sd import METHODS, DecodeConfig, load
from d2sd.bench.baselines import stock_twin
from d2sd.bench.lossless import shortfalls, teacher_forced
from d2sd.bench.prompts import read_prompts
from d2sd.bench.settings import DEFAULT_MARGIN

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

PROMPTS = [p.text for p in read_prompts("heldout", limit=6)]


@pytest.fixture(scope="module", params=["eager", "captured"])
def engine(request):
    return load("tiny", device="cuda", passes=request.param)


@pytest.mark.parametrize("method", METHODS)
def test_float32_ids_on_gpu_equal_cpu(engine, method):
    cpu = load("tiny", device="cpu")
    for prompt in PROMPTS:
        config = DecodeConfig(method, 64)
        assert engine.generate(prompt, config).token_ids == cpu.generate(prompt, config).token_ids
    if engine.mode == "captured":
        assert all(passes.mode == "captured" for _, passes in engine._free)


@pytest.mark.parametrize("most", [96, 8])
def test_later_captures_leave_earlier_graphs_correct(most, monkeypatch):
    """Graphs share memory. Changing settings capture some passes again, or more passes than are kept."""
    monkeypatch.setattr("d2sd.nets.passes.MAX_CAPTURED", most)
    eager, captured = (load("tiny", device="cuda", passes=passes) for passes in ("eager", "captured"))
    for settings in ({}, {"temperature": 0.8, "seed": 3}, {"num_branches": 2}, {}, {"temperature": 0.8, "seed": 4}):
        for method in ("d2sd", "dflash", "d2sd_tree"):
            config = DecodeConfig(method, 48, **settings)
            one, other = (e.generate(PROMPTS[1], config) for e in (eager, captured))
            assert one.token_ids == other.token_ids
            assert [s.accepted for s in one.steps] == [s.accepted for s in other.steps]
    assert all(passes.mode == "captured" for _, passes in captured._free)


@pytest.mark.parametrize("passes", ["eager", "captured"])
@pytest.mark.parametrize("method", METHODS)
def test_bfloat16_texts_are_greedy_or_near_ties(method, passes):
    engine = load("tiny", device="cuda", dtype="bfloat16", passes=passes)
    twin = stock_twin(engine.models.target)
    for prompt in PROMPTS:
        trace = engine.generate(prompt, DecodeConfig(method, 64))
        ids = list(trace.token_ids)
        logits = teacher_forced(twin, list(trace.prefill.prompt_token_ids), ids)
        assert shortfalls(logits, ids).max() <= DEFAULT_MARGIN


@pytest.mark.parametrize("method", [m.id for m in METHODS.values() if m.on_device])
@torch.inference_mode()
def test_device_cycle_queues_without_synchronizing(method):
    engine = load("tiny", device="cuda", passes="captured")
    config = engine.resolve(DecodeConfig(method, 64))
    ids = engine.encode(PROMPTS[0], config)
    with engine._lent_passes(config, len(ids) + 64) as passes:
        run = engine.generation(ids, config, passes)
        run.prefill()
        for _ in range(4):  # the first step captures
            run.step()
        try:
            torch.cuda.set_sync_debug_mode("error")
            run.cycle.queue(run.ids)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
        assert passes.mode == "captured"


def test_thousand_cycles_leak_no_memory(engine):
    def cycles(count):
        done = 0
        while done < count:
            done += len(engine.generate(PROMPTS[0], DecodeConfig("d2sd", 64)).steps)
        torch.cuda.synchronize()
        gc.collect()
        return torch.cuda.memory_allocated()

    before = cycles(50)
    assert cycles(1000) - before < 1 << 20


def test_out_of_memory_is_one_sentence_and_recoverable(engine):
    short = DecodeConfig("d2sd", 32)
    expected = engine.generate(PROMPTS[0], short).token_ids
    engine._free.clear()
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (32 << 20)) / total)
    others = []
    try:
        with suppress(torch.OutOfMemoryError):
            while True:
                others.append(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))
        with pytest.raises(torch.OutOfMemoryError) as caught:
            engine.generate(PROMPTS[0], DecodeConfig("d2sd", 900))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert engine.generate(PROMPTS[0], short).token_ids == expected
    pytest.importorskip("gradio", reason="the page turns the error into a sentence")
    from app.explore.run import failure_sentence

    assert "not enough memory" in failure_sentence(caught.value)
