"""Layers run with few calls give what the models' own forward passes give."""

from __future__ import annotations

import pytest
import torch

from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.nets import lean as lean_layers
from d2sd.nets.attention import make_backend
from d2sd.nets.dtypes import can_mix
from d2sd.nets.lean import LeanLayers, product
from d2sd.nets.passes import Passes
from tests.nets import make_drafter, make_target


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_a_tree_gets_the_same_hidden_states_and_features(tokenizer, kind):
    target = make_target(tokenizer, kind)
    target.taps.add([0, 2])
    dense = make_backend("dense")
    results = []
    for lean in (target._lean, None):
        assert results or lean is not None
        target._lean = lean
        cache = target.new_cache(32)
        target.forward(torch.arange(7), torch.arange(7), cache, None, None)
        cache.commit(range(7))
        mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]).bool()
        tree = target.forward(torch.tensor([4, 9, 8, 7]), torch.tensor([7, 8, 8, 9]), cache, mask, dense)
        features = target.features([0, 2], slice(None))
        cache.commit([0, 1, 3])
        one = target.forward(torch.tensor([3]), torch.tensor([10]), cache, None, dense)
        results.append((tree, features, one, *cache.parts[0]))
    for ours, own in zip(*results, strict=True):
        torch.testing.assert_close(ours, own, atol=2e-4, rtol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("branches", [1, 3])
def test_drafts_are_the_same(tokenizer, branches):
    target = make_target(tokenizer)
    model = make_drafter(target)
    features = torch.randn(1, 9, len(model.target_layer_ids) * 64)
    results = []
    for lean in (True, False):
        if not lean:
            model.lean = lambda: None
        drafter = BlockDrafter("first", model, target, Passes("eager", "dense", 64, target.device))
        drafter.extend(features, torch.arange(9))
        ids = torch.randint(0, 300, (branches, 8), generator=torch.Generator().manual_seed(0))
        logits = drafter.forward(ids, torch.arange(9, 17), torch.arange(branches * 8), None, 3)[1]
        results.append((logits, *drafter.cache.layer(0), *drafter.cache.layer(1)))
    for ours, own in zip(*results, strict=True):
        torch.testing.assert_close(ours, own, atol=2e-4, rtol=1e-4)


def test_what_may_change_is_left_alone(tokenizer):
    model = make_drafter(make_target(tokenizer))
    assert model.lean() is not None
    model.requires_grad_(True)
    assert model.lean() is None
    assert not LeanLayers.possible(model, model.config)


def test_a_large_model_is_not_kept_twice(tokenizer, monkeypatch):
    model = make_drafter(make_target(tokenizer))
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    monkeypatch.setattr(lean_layers, "MAX_BYTES", size)
    assert LeanLayers.possible(model, model.config)
    monkeypatch.setattr(lean_layers, "MAX_BYTES", size - 1)
    assert not LeanLayers.possible(model, model.config)


def test_products_are_the_same_without_onednn(monkeypatch):
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
def test_products_have_float32_rounding_for_any_number_of_rows(half, rows):
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
