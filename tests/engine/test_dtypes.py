"""Number formats: ``make narrow`` limits torch to AVX2, models run in float32 without FBGEMM, torch's default dtype."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from d2sd import DecodeConfig, Engine, InputError, load
from d2sd.folders import loading
from d2sd.folders.loading import load_models
from d2sd.folders.model_sets import resolve
from d2sd.nets import dtypes as numbers
from d2sd.nets.dtypes import can_mix, product
from d2sd.nets.models import Models
from tests.nets import make_drafter, make_eagle3, make_target, save_models


@pytest.mark.skipif("ATEN_CPU_CAPABILITY" not in os.environ, reason="only make narrow limits torch to AVX2")
@torch.inference_mode()
def test_aten_and_fbgemm_are_limited_to_avx2():
    """FBGEMM does not report its kernel. With AVX2, but not AVX-512, a row's last bits depend on the number of rows."""
    assert torch.backends.cpu.get_cpu_capability() == "AVX2"
    random = torch.Generator().manual_seed(0)
    multiply = product(torch.randn(96, 576, generator=random), half=True)
    x = torch.randn(5, 576, generator=random)
    assert not torch.equal(multiply(x[:1]), multiply(x)[:1])


def missing(*_):
    raise RuntimeError("Didn't find engine for operation quantized::linear_prepack NoQEngine")


@pytest.fixture(params=[*sorted({*torch.backends.quantized.supported_engines} - {"none", "x86", "fbgemm"}), None])
def without_fbgemm(monkeypatch, request):
    """As on a processor for which torch has only this library of quantized products (None: no library); QNNPACK is that of ARM."""
    can_mix.cache_clear()
    if request.param:
        monkeypatch.setattr(torch.backends.quantized, "engine", request.param)
    else:
        monkeypatch.setattr(torch.ops.quantized, "linear_prepack_fp16", missing)
    yield
    can_mix.cache_clear()


@pytest.fixture
def folder(tmp_path, tokenizer):
    target = make_target(tokenizer, "llama")
    return str(save_models(tmp_path, target, dflash=make_drafter(target)))


def test_models_without_fbgemm_run_in_float32(without_fbgemm, folder, monkeypatch):
    assert not can_mix()
    monkeypatch.setattr(numbers, "MIXED_FROM", 0)  # treat this small target as a large one
    models = load_models(resolve(folder))
    assert models.target.numbers == "float32"
    plain, drafted = (Engine(models).generate("the cat", DecodeConfig(m, 12)) for m in ("autoregressive", "dflash"))
    assert drafted.token_ids == plain.token_ids
    assert "(FBGEMM is missing)" in numbers.taken_here()
    with pytest.raises(InputError, match="--dtype mixed needs torch's FBGEMM products"):
        load_models(resolve(folder, dtype="mixed"))


@pytest.mark.skipif(not can_mix(), reason="torch has no products with float16 weights here")
def test_mixed_dtype_is_default_for_large_targets(folder, monkeypatch):
    assert load_models(resolve(folder)).target.numbers == "float32"
    trace = Engine(load_models(resolve(folder, dtype="mixed"))).generate("the cat", DecodeConfig("autoregressive", 8))
    assert trace.header["hardware"]["dtype"] == "mixed"
    assert len(trace.token_ids) == 8
    monkeypatch.setattr(numbers, "MIXED_FROM", 0)
    assert load_models(resolve(folder)).target.numbers == "mixed"


def test_runs_do_not_depend_on_the_default_dtype(tokenizer):
    """transformers sets torch's global default dtype while it builds a model."""

    def engine():
        target, small = make_target(tokenizer), make_target(tokenizer, seed=1)
        return Engine(Models(target, make_drafter(target), make_drafter(target), small, eagle3=make_eagle3(target)))

    def drafted(trace):
        return trace.token_ids, [(s.first_draft, s.branches, s.nodes, s.target_tops) for s in trace.steps]

    usual, other = engine(), engine()
    for method in ("d2sd_tree", "draft_model", "eagle3"):  # with every kind of drafter
        config = DecodeConfig(method, 5, temperature=0.8)
        expected = drafted(usual.generate("the cat", config))
        torch.set_default_dtype(torch.bfloat16)
        try:
            trace = other.generate("the cat", config)
        finally:
            torch.set_default_dtype(torch.float32)
        assert drafted(trace) == expected, method


def test_concurrent_model_loads_are_serialized(monkeypatch):
    """Otherwise one load could find, and later restore, the default dtype that the other has set."""
    read, inside, most = loading.AutoModelForCausalLM.from_pretrained, [], []

    def counted(*args, **options):
        inside.append(1)
        most.append(len(inside))
        try:
            return read(*args, **options)
        finally:
            inside.pop()

    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", counted)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda dtype: load("tiny", dtype=dtype), ("bfloat16", "float32")))
    assert set(most) == {1}
    assert torch.get_default_dtype() == torch.float32
