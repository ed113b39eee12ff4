"""Packed layers: which models use them, their matrix products, and the cache that they write to.

``test_lossless.py`` and ``test_drafters.py`` here, and ``tests/unit/test_eagle3.py``, test what they compute."""

from __future__ import annotations

import pytest
import torch

from d2sd.nets import packed as packed_layers
from d2sd.nets.attention import attend_dense
from d2sd.nets.dtypes import can_mix
from d2sd.nets.packed import PackedLayers, product
from tests.nets import make_drafter, make_target
from tests.target_nets import TARGETS, make_typed


def test_packed_layers_are_off_for_trainable_large_or_windowed_models(tokenizer, monkeypatch):
    model, windowed = make_drafter(make_target(tokenizer)), make_typed(tokenizer, "ministral")
    assert model.packed() is not None
    assert not PackedLayers.possible(windowed.base, windowed.config)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    for limit, possible in ((size, True), (size - 1, False)):
        monkeypatch.setattr(packed_layers, "MAX_BYTES", limit)
        assert PackedLayers.possible(model, model.config) == possible
    monkeypatch.undo()
    model.requires_grad_(True)
    assert model.packed() is None


def test_product_is_correct_without_onednn(monkeypatch):
    monkeypatch.setattr(packed_layers, "SMALL", 0)
    weight, x = torch.randn(24, 16), torch.randn(2, 5, 16)
    quick = product(weight)(x)

    def missing(*_):
        raise RuntimeError("not here")

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", missing)
    for found in (quick, product(weight)(x)):
        torch.testing.assert_close(found, x @ weight.T)


@torch.inference_mode()
@pytest.mark.parametrize("rows", [1, 2, 5, 33])
@pytest.mark.parametrize("kind", ["small", "large", "mixed"])
def test_product_has_float32_rounding_for_any_row_count(kind, rows, monkeypatch):
    """The last bits may depend on the number of rows, in FBGEMM's products for AVX2 and in torch's own."""
    half = kind == "mixed"
    monkeypatch.setattr(packed_layers, "SMALL", 0 if kind == "large" else 1 << 20)
    if half and not can_mix():
        pytest.skip("torch has no products with float16 weights here")
    random = torch.Generator().manual_seed(0)
    weight, x = torch.randn(48, 256, generator=random), torch.randn(1, 33, 256, generator=random)[:, :rows]
    found = product(weight, half)(x).double()
    weight, x = (weight.half() if half else weight).double(), x.double()
    scale = torch.finfo(torch.float32).eps * (x.abs() @ weight.abs().T)
    error = ((found - x @ weight.T).abs() / scale).max()
    assert error < 16  # about 2 here; activations rounded to float16 give hundreds, to bfloat16 thousands


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["qwen3", "llama", "smollm3", "granite"])
@pytest.mark.parametrize("rows", [1, 5])
def test_packed_layers_equal_modules(tokenizer, monkeypatch, kind, rows):
    """Hidden states, tapped outputs, keys and values of a chain and of a tree after seven tokens."""
    target = make_typed(tokenizer, kind) if kind in TARGETS else make_target(tokenizer, kind, layers=4)
    with torch.no_grad():
        for name, weight in target.model.named_parameters():
            if "norm" in name:
                weight.add_(0.3 * torch.randn_like(weight))
    target.taps.add([1, 2])
    text, drafted = torch.arange(7) % 5 + 1, torch.arange(rows) % 3 + 2
    mask = torch.ones(rows, rows, dtype=torch.bool).tril()
    mask[3:, 2:3] = False  # row 2 is a sibling
    found = []
    for packed in (True, False):
        cache = target.new_cache(20)
        target.forward(text, torch.arange(7), cache, None, None)
        cache.commit(range(7))
        with monkeypatch.context() as patch:
            if not packed:
                patch.setitem(target.__dict__, "packed", None)
            hidden = target.forward(drafted, 6 + mask.sum(-1), cache, mask, attend_dense)
        cache.commit(range(rows))
        found.append([hidden, *target.taps.outputs(), *(x for n in range(4) for x in cache.layer(n))])
    assert isinstance(target.packed, PackedLayers)
    for one, other in zip(*found, strict=True):
        rounding = torch.finfo(torch.float32).eps * float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=0, atol=64 * rounding)  # about 10 on all processors
