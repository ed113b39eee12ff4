"""Layers run with few calls: which models have them, and the products that they multiply by. What they compute:
``tests/engine/test_lossless.py``, ``tests/engine/test_drafters.py``, ``tests/unit/test_eagle3.py``."""

from __future__ import annotations

import pytest
import torch

from d2sd.nets import packed as packed_layers
from d2sd.nets.dtypes import can_mix
from d2sd.nets.packed import PackedLayers, product
from tests.nets import make_drafter, make_target


def test_lean_layers_are_off_for_trainable_weights(tokenizer):
    model = make_drafter(make_target(tokenizer))
    assert model.packed() is not None
    model.requires_grad_(True)
    assert model.packed() is None
    assert not PackedLayers.possible(model, model.config)


def test_lean_layers_are_off_above_max_bytes(tokenizer, monkeypatch):
    model = make_drafter(make_target(tokenizer))
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    monkeypatch.setattr(packed_layers, "MAX_BYTES", size)
    assert PackedLayers.possible(model, model.config)
    monkeypatch.setattr(packed_layers, "MAX_BYTES", size - 1)
    assert not PackedLayers.possible(model, model.config)


def test_product_is_correct_without_onednn(monkeypatch):
    weight, x = torch.randn(24, 16), torch.randn(2, 5, 16)
    quick = product(weight)(x)

    def missing(*_):
        raise RuntimeError("not here")

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", missing)
    for found in (quick, product(weight)(x)):
        torch.testing.assert_close(found, x @ weight.T)


@torch.inference_mode()
@pytest.mark.parametrize("rows", [1, 2, 5, 33])
@pytest.mark.parametrize("half", [False, True], ids=["float32", "mixed"])
def test_product_has_float32_rounding_for_any_row_count(half, rows):
    """Not the same bits beside other rows: FBGEMM's products for AVX2 depend on them, as torch's own do."""
    if half and not can_mix():
        pytest.skip("torch has no products with float16 weights here")
    random = torch.Generator().manual_seed(0)
    weight, x = torch.randn(48, 256, generator=random), torch.randn(1, 33, 256, generator=random)[:, :rows]
    found = product(weight, half)(x).double()
    weight, x = (weight.half() if half else weight).double(), x.double()
    scale = torch.finfo(torch.float32).eps * (x.abs() @ weight.abs().T)
    error = ((found - x @ weight.T).abs() / scale).max()
    assert error < 16  # about 2 here; activations rounded to float16 give hundreds, to bfloat16 thousands
