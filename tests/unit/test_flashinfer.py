"""Our code around flashinfer that can be tested without a GPU: plans, layouts, obstacles."""

from __future__ import annotations

import sys

import pytest
import torch

from d2sd import DecodeConfig, InputError
from d2sd.nets import flashinfer
from d2sd.nets.attention import attend_dense as dense
from d2sd.nets.attention import choose
from tests.unit import reference_flashinfer
from tests.unit.drafts import merge_candidates
from tests.unit.test_attention import inputs

GPU, HALF = torch.device("cuda"), torch.bfloat16


@pytest.fixture
def documented(monkeypatch):
    """Replaces flashinfer by the reference of its documented behaviour."""
    monkeypatch.setattr(flashinfer, "_library", lambda: reference_flashinfer)


@pytest.fixture
def equipped(monkeypatch):
    """A machine that has everything flashinfer needs."""
    monkeypatch.setattr(flashinfer, "find_spec", lambda _: True)
    monkeypatch.setattr(flashinfer.shutil, "which", lambda name, **_: f"/usr/bin/{name}")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("context", [0, 1, 33])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (8, 2), (8, 1)])
@pytest.mark.parametrize("fixed", [False, True])
def test_flashinfer_matches_dense_attention(documented, heads, kv_heads, context, batch, fixed):
    tree = merge_candidates(0, [[1, 2, 3], [1, 4], [5, 2, 3]])
    mask = torch.from_numpy(tree.ancestor_mask())
    query, prefix, block = inputs(batch, heads, kv_heads, len(tree), context, 16)
    backend = flashinfer.FlashInfer(fixed)
    for shown in (mask, None):
        out = backend(query, prefix, block, shown, 0.25)
        torch.testing.assert_close(out, dense(query, prefix, block, shown, 0.25), atol=1e-5, rtol=1e-5)


def test_flashinfer_layers_share_one_plan(documented):
    query, prefix, block = inputs(1, 4, 2, 5, 9, 16)
    mask, backend = torch.eye(5, dtype=torch.bool), flashinfer.FlashInfer()
    for _ in range(3):
        backend(query, prefix, block, mask, 0.25)
    (stage,) = backend._stages.values()
    assert stage.prefix.plans == stage.block.plans == 1
    backend(query, prefix, block, mask.clone(), 0.25)  # another tree
    assert stage.block.plans == 2


def test_flashinfer_chosen_when_available(equipped):
    assert choose("auto", GPU, HALF, 128) == "flashinfer"
    assert choose("auto", torch.device("cpu"), HALF, 128) == "dense"


def without(monkeypatch, name):
    monkeypatch.setattr(flashinfer.shutil, "which", lambda n, **_: None if n == name else f"/usr/bin/{n}")


@pytest.mark.parametrize(
    ("change", "device", "dtype", "head_dim", "reason"),
    [
        (lambda m: None, torch.device("cpu"), HALF, 128, "needs a CUDA GPU, and these models are on the cpu"),
        (lambda m: m.setattr(flashinfer, "find_spec", lambda _: None), GPU, HALF, 128, "package flashinfer-python"),
        (lambda m: without(m, "nvcc"), GPU, HALF, 128, "nvcc, which is not on this machine"),
        (lambda m: without(m, "ninja"), GPU, HALF, 128, "ninja, which is not on this machine"),
        (lambda m: m.setenv("SPACES_ZERO_GPU", "1"), GPU, HALF, 128, "ZeroGPU's limited GPU time"),
        (lambda m: m.setattr(torch.cuda, "get_device_capability", lambda _: (7, 0)), GPU, HALF, 128, "capability 7.5"),
        (lambda m: None, GPU, torch.float32, 128, "not in float32"),
        (lambda m: None, GPU, HALF, 16, "no kernels for head size 16"),
    ],
)
def test_flashinfer_obstacle_is_named_and_auto_falls_back(
    equipped, monkeypatch, change, device, dtype, head_dim, reason
):
    change(monkeypatch)
    with pytest.raises(InputError, match=rf"the attention backend flashinfer .*{reason}.*; use cascade or auto"):
        choose("flashinfer", device, dtype, head_dim)
    assert choose("auto", device, dtype, head_dim) in ("cascade", "dense")


def test_flashinfer_finds_ninja_beside_python(equipped, monkeypatch):
    beside = flashinfer.SCRIPTS
    monkeypatch.setattr(
        flashinfer.shutil, "which", lambda name, path=None: None if name == "ninja" and path != beside else f"/x/{name}"
    )
    assert flashinfer.obstacle(GPU, HALF, 128) is None


def test_flashinfer_refused_on_cpu(engine):
    with pytest.raises(InputError, match="flashinfer needs a CUDA GPU"):
        engine.stream("the cat", DecodeConfig("d2sd", 8, backend="flashinfer"))
    assert engine.resolve(DecodeConfig("d2sd", 8)).backend == "dense"
    assert engine.first_use("dense") is None


def test_flashinfer_first_compilation_announced_once(engine, monkeypatch, tmp_path):
    monkeypatch.setenv("FLASHINFER_WORKSPACE_BASE", str(tmp_path))
    assert "compiles its kernels" in engine.first_use("flashinfer")
    (tmp_path / ".cache" / "flashinfer" / "0.7").mkdir(parents=True)
    (tmp_path / ".cache" / "flashinfer" / "0.7" / "kernel.so").touch()
    assert engine.first_use("flashinfer") is None


def test_attention_does_not_import_flashinfer():
    assert "flashinfer" not in sys.modules
