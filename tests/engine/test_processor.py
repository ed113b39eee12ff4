"""``make narrow`` limits every part of torch to AVX2, and machines without FBGEMM run models in float32."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from d2sd import DecodeConfig, Engine, InputError
from d2sd.folders.loading import load_models
from d2sd.folders.model_sets import resolve
from d2sd.nets import dtypes as numbers
from d2sd.nets.dtypes import can_mix
from d2sd.nets.packed import product
from tests.nets import make_drafter, make_target, save_models

LIMITED = "ATEN_CPU_CAPABILITY" in os.environ
limited = pytest.mark.skipif(not LIMITED, reason="torch may use more than AVX2 here; make narrow limits it")
TALK = """
import torch
weight, x = torch.ones(64, 64), torch.ones(8, 64)
with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
    torch.ops.mkldnn._reorder_linear_weight(weight, 16)
with torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON):
    x @ weight
"""


def test_make_narrow_names_files_that_exist():
    """``make narrow`` skips itself on processors without AVX-512, where a wrong name would go unnoticed."""
    here = Path(__file__).parent
    (names,) = re.findall(
        r"^NUMBERS := \$\(addprefix tests/engine/test_,(.+)\)$", (here.parents[1] / "Makefile").read_text(), re.M
    )
    assert [name for name in names.split() if not (here / f"test_{name}").is_file()] == []


@limited
def test_aten_onednn_and_mkl_are_limited_to_avx2():
    assert torch.backends.cpu.get_cpu_capability() == "AVX2"
    done = subprocess.run([sys.executable, "-c", TALK], capture_output=True, text=True, check=True)
    assert "isa:Intel AVX2\n" in done.stdout
    assert "MKL_VERBOSE" in done.stdout
    assert "AVX-512" not in done.stdout  # MKL names it on Intel processors only


@limited
@torch.inference_mode()
def test_fbgemm_is_limited_to_avx2():
    """FBGEMM does not report its kernel. With AVX2, but not AVX-512, a row's last bits depend on the number of rows."""
    random = torch.Generator().manual_seed(0)
    multiply = product(torch.randn(96, 576, generator=random), half=True)
    x = torch.randn(5, 576, generator=random)
    assert not torch.equal(multiply(x[:1]), multiply(x)[:1])


@pytest.fixture
def without_fbgemm(monkeypatch):
    def missing(*_):
        raise RuntimeError("Didn't find engine for operation quantized::linear_prepack NoQEngine")

    can_mix.cache_clear()
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


def test_taken_here_names_dtype_of_this_machine(monkeypatch):
    for able, named in ((True, "float16"), (False, "float32")):
        monkeypatch.setattr(numbers, "can_mix", lambda able=able: able)
        assert named in numbers.taken_here()
