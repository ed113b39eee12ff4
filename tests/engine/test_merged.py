"""Packed layers for CPUs, and layers with merged weights, with torch's kernels and flashinfer's reference."""

from __future__ import annotations

import random

import pytest
import torch

from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.decoding.verifier import Verifier
from d2sd.nets import dtypes, flashinfer
from d2sd.nets import packed as packed_layers
from d2sd.nets.attention import attend_dense
from d2sd.nets.dtypes import can_mix, product
from d2sd.nets.lean import TORCH
from d2sd.nets.packed import PackedLayers
from d2sd.nets.passes import ROWS, Passes
from d2sd.replay.anchors import GREEDY
from tests.nets import make_drafter, make_target, stock_pass
from tests.target_nets import make_typed
from tests.unit import reference_flashinfer
from tests.unit.drafts import random_tree

CPU = torch.device("cpu")
LLAMA3 = {
    "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
}  # fmt: skip
KINDS = ("qwen3", "llama", "mistral", "ministral", "smollm3", "granite")
WITHOUT_WINDOWS = {
    "mistral": {"sliding_window": None},
    "ministral": {"sliding_window": None, "layer_types": ["full_attention"] * 4},
}


@pytest.fixture(autouse=True)
def documented(monkeypatch):
    """Replaces flashinfer by a reference of its documented behaviour."""
    monkeypatch.setattr(flashinfer, "_library", lambda: reference_flashinfer)


def make(tokenizer, kind, plain=False):
    """A target of this type. ``plain``: without sliding windows, as flashinfer requires."""
    return make_typed(
        tokenizer, kind, **WITHOUT_WINDOWS.get(kind, {}) if plain else {}, **LLAMA3 if kind == "llama" else {}
    )


def verified(target, backend, merged, trees, start=13):
    """Logits, tapped outputs and caches of trees after a text of ``start`` tokens; a path of each tree is committed."""
    passes = Passes("padded", backend, start + 243, target.device, merged)
    verifier = Verifier(target, passes)
    assert (verifier.merged is not None) == merged
    verifier.read([(7 * n + 3) % 300 for n in range(start)])
    found = []
    for tree in trees:
        logits = verifier.logits(tree)
        rows = slice(0, len(tree))
        found.append([logits, target.features([0, 2, 3], rows).clone()])
        verifier.cache.commit([0, *tree.path(len(tree) - 1)])
        found[-1] += [part.clone() for layer in range(4) for part in verifier.cache.layer(layer)]
    return found


def compare(ours, own, error=2e-4):
    for one, other in zip(ours, own, strict=True):
        for a, b in zip(one, other, strict=True):
            torch.testing.assert_close(a, b, atol=error, rtol=error)


@torch.inference_mode()
@pytest.mark.parametrize("backend", ["dense", "cascade", "flashinfer"])
@pytest.mark.parametrize("kind", KINDS)
def test_merged_tree_pass_equals_modules(tokenizer, kind, backend):
    """All row counts up to 80 after a text longer than the windows. Reference features come from the modules' hooks."""
    target, rng = make(tokenizer, kind, backend == "flashinfer"), random.Random(KINDS.index(kind))
    target.taps.add([0, 2, 3])
    assert backend != "flashinfer" or target.plain_attention
    trees = [random_tree(rng, size) for size in (1, 5, 9, 17, 30, 40, 60, 71)]
    assert {next(r for r in ROWS if r >= len(t)) for t in trees} == {r for r in ROWS if r <= 80}
    own = verified(target, "dense", False, trees)
    compare(verified(target, backend, True, trees), own)


@torch.inference_mode()
@pytest.mark.parametrize("backend", ["dense", "flashinfer"])
def test_merged_pass_where_the_context_shape_grows_equals_transformers(tokenizer, backend):
    target = make(tokenizer, "llama")
    target.taps.add([0, 2, 3])
    trees = [random_tree(random.Random(0), 1) for _ in range(3)]
    start = 254  # slots for 256 tokens are the smallest shape
    ours = verified(target, backend, True, trees, start)
    text = [(7 * n + 3) % 300 for n in range(start)] + [tree.tokens[0] for tree in trees]
    logits = stock_pass(target.model, [text]).logits
    torch.testing.assert_close(torch.cat([row for row, *_ in ours]), logits[0, start:], atol=2e-4, rtol=2e-4)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_merged_16_bit_layers_differ_by_rounding_only(tokenizer, dtype):
    """All calls run in this dtype, as on a GPU, and are compared with the modules in float32."""
    target, rng = make(tokenizer, "qwen3"), random.Random(2)
    target.taps.add([0, 2, 3])
    trees = [random_tree(rng, size) for size in (1, 7, 30)]
    own = verified(target, "dense", False, trees)
    target = make(tokenizer, "qwen3")
    target.model.to(dtype)
    target.taps.add([0, 2, 3])
    for one, other in zip(verified(target, "flashinfer", True, trees), own, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.dtype == dtype
            assert float((a.float() - b).norm() / b.norm()) < (0.05 if dtype == torch.bfloat16 else 0.01)


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


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["qwen3", "llama", "smollm3", "granite"])
@pytest.mark.parametrize("rows", [1, 5])
def test_packed_layers_equal_modules(tokenizer, monkeypatch, kind, rows):
    """Hidden states, tapped outputs, keys and values of a chain and of a tree after seven tokens."""
    target = make_typed(tokenizer, kind)
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


@torch.inference_mode()
@pytest.mark.parametrize("rows", [1, 5, 33])
@pytest.mark.parametrize("kind", ["small", "large", "mixed", "without oneDNN"])
def test_product_has_float32_rounding_for_any_row_count(kind, rows, monkeypatch):
    """The last bits may depend on the number of rows, in FBGEMM's products for AVX2 and in torch's own."""

    def missing(*_):
        raise RuntimeError("not here")

    half = kind == "mixed"
    monkeypatch.setattr(dtypes, "SMALL", 1 << 20 if kind in ("small", "mixed") else 0)
    if half and not can_mix():
        pytest.skip("torch has no products with float16 weights here")
    if kind == "without oneDNN":
        monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", missing)
    random = torch.Generator().manual_seed(0)
    weight, x = torch.randn(48, 256, generator=random), torch.randn(1, 33, 256, generator=random)[:, :rows]
    result = product(weight, half)(x).double()
    weight, x = (weight.half() if half else weight).double(), x.double()
    scale = torch.finfo(torch.float32).eps * (x.abs() @ weight.abs().T)
    error = ((result - x @ weight.T).abs() / scale).max()
    assert error < 16  # about 2 here; activations rounded to float16 give hundreds, to bfloat16 thousands


def drafted(model, target, backend, merged, branches):
    passes = Passes("padded", backend, 64, torch.device("cpu"), merged)
    drafter = BlockDrafter("first", model, target, passes, GREEDY)
    assert (drafter.merged is not None) == merged
    features = torch.randn(1, 12, len(drafter.taps) * 64, generator=torch.Generator().manual_seed(0))
    for begin, end in ((0, 9), (9, 12)):
        drafter.extend(features[:, begin:end], torch.arange(begin, end))
    ids = torch.randint(0, 300, (branches, 8), generator=torch.Generator().manual_seed(0))
    drafter.plan(branches, 8)
    logits = drafter.forward(ids, torch.arange(12, 20), torch.arange(branches * 8), 64, 3)[1]
    return [[logits, *drafter.cache.layer(0), *drafter.cache.layer(1)]]


@torch.inference_mode()
@pytest.mark.parametrize(("backend", "branches"), [("dense", 1), ("cascade", 3), ("flashinfer", 1), ("flashinfer", 3)])
def test_merged_drafter_pass_equals_modules(tokenizer, backend, branches):
    target = make_target(tokenizer)
    model = make_drafter(target)
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    compare(drafted(model, target, backend, True, branches), drafted(model, target, "dense", False, branches))


@pytest.mark.parametrize("drafter", [False, True])
def test_merged_weights_are_the_layers_own_without_a_copy(tokenizer, drafter, tmp_path):
    target = make_target(tokenizer)
    model = make_drafter(target) if drafter else target
    layers, saved = model.layers if drafter else model.base.layers, model if drafter else model.model
    before = {name: p.clone() for name, p in saved.state_dict().items()}
    lean = model.merged(TORCH)
    assert model.merged(TORCH) is lean
    saved.save_pretrained(tmp_path)
    after = type(saved).from_pretrained(tmp_path).state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    storages = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in layers.parameters()}
    assert sum(storages.values()) == sum(p.nbytes for p in layers.parameters())
    saved.double()
    assert model.merged(TORCH)._merged[0].dtype == torch.float64


class Quantised(torch.nn.Linear):
    pass


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: setattr(layer.self_attn.o_proj, "bias", torch.nn.Parameter(torch.zeros(64), requires_grad=False)),
        lambda layer: setattr(layer, "_hf_hook", object()),
        lambda layer: setattr(layer.mlp.up_proj, "__class__", Quantised),
        lambda layer: layer.to(torch.bfloat16),
        lambda layer: layer.requires_grad_(True),
    ],
    ids=["bias", "hook", "quantised", "other dtype", "trainable"],
)
def test_merging_skips_layers_that_need_their_modules(tokenizer, change):
    target = make_target(tokenizer, "llama")
    change(target.base.layers[1])
    assert target.merged(TORCH) is None
