"""Layers with merged weights, used in passes of fixed shape, with torch's kernels and flashinfer's reference."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from d2sd.decoding.block_drafter import BlockDrafter
from d2sd.decoding.verifier import Verifier
from d2sd.nets import flashinfer
from d2sd.nets.lean import TORCH, merge_linears
from d2sd.nets.passes import ROWS, Passes
from d2sd.nets.target import Target
from tests.nets import make_drafter, make_target, stock_pass
from tests.target_nets import SHAPE, TARGETS, make_typed
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
PLAIN = {
    "mistral": {"sliding_window": None},
    "ministral": {"sliding_window": None, "layer_types": ["full_attention"] * 4},
    "smollm3": TARGETS["smollm3"],
    "granite": TARGETS["granite"],
}


@pytest.fixture(autouse=True)
def documented(monkeypatch):
    """Replaces flashinfer by a reference of its documented behaviour."""
    monkeypatch.setattr(flashinfer, "_library", lambda: reference_flashinfer)


def make(tokenizer, kind, plain=False):
    """A target of this type. ``plain``: without sliding windows, as flashinfer requires."""
    torch.manual_seed(0)
    if kind in TARGETS and not plain:
        return make_typed(tokenizer, kind)
    options = PLAIN.get(kind, {}) | (LLAMA3 if kind == "llama" else {})
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SHAPE | options)).float()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(0.3 * torch.randn_like(weight))
    return Target(model, tokenizer, kind)


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
    target, rng = make(tokenizer, kind, plain=backend == "flashinfer"), random.Random(KINDS.index(kind))
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


# Weights.


@pytest.mark.parametrize("contexts", [False, True])
def test_merged_weights_share_storage_with_layers(tokenizer, contexts):
    target = make_target(tokenizer)
    model = make_drafter(target) if contexts else target
    layers = model.layers if contexts else model.base.layers
    before = {name: p.clone() for name, p in layers.named_parameters()}
    lean = model.merged(TORCH)
    assert model.merged(TORCH) is lean
    for layer, own, qkv in zip(layers, lean.layers, lean._merged, strict=True):
        a, m = layer.self_attn, layer.mlp
        gate_up = own.gate_up.keywords["weight"]
        for parts, whole in (((a.q_proj, a.k_proj, a.v_proj), qkv), ((m.gate_proj, m.up_proj), gate_up)):
            assert torch.equal(torch.cat([part.weight for part in parts]), whole)
    after = dict(layers.named_parameters())
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    held = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in layers.parameters()}
    assert sum(held.values()) == sum(p.nbytes for p in layers.parameters())


def test_merged_weights_are_rebuilt_after_dtype_change(tokenizer):
    target = make_target(tokenizer)
    lean = target.merged(TORCH)
    target.model.double()
    assert target.merged(TORCH) is not lean
    assert target.merged(TORCH)._merged[0].dtype == torch.float64
    assert torch.equal(merge_linears([target.base.layers[0].mlp.gate_proj]), target.base.layers[0].mlp.gate_proj.weight)


def test_merge_copies_slices_in_another_order():
    one, other = (torch.nn.Linear(3, rows, bias=False).requires_grad_(False) for rows in (2, 4))
    merge_linears([one, other])
    assert torch.equal(merge_linears([other, one]), torch.cat([other.weight, one.weight]))


def test_merged_model_save_pretrained_keeps_all_weights(tokenizer, tmp_path):
    target = make_target(tokenizer)
    target.merged(TORCH)
    target.model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    for name, weight in target.model.state_dict().items():
        assert torch.equal(again[name], weight)


def test_merging_skips_bias_hook_quantised_and_trainable_layers(tokenizer):
    def of(change):
        target = make_target(tokenizer, "llama")
        change(target.base)
        return target.merged(TORCH)

    class Quantised(torch.nn.Linear):
        pass

    def biased(base):
        base.layers[1].self_attn.o_proj.bias = torch.nn.Parameter(torch.zeros(64), requires_grad=False)

    def hooked(base):
        base.layers[1]._hf_hook = object()

    def quantised(base):
        base.layers[1].mlp.up_proj.__class__ = Quantised

    def mixed(base):
        base.layers[1].to(torch.bfloat16)

    assert of(lambda base: None) is not None
    for change in (biased, hooked, quantised, mixed, lambda base: base.layers[2].requires_grad_(True)):
        assert of(change) is None


# Drafters.


def drafted(model, target, backend, merged, branches):
    drafter = BlockDrafter("first", model, target, Passes("padded", backend, 64, CPU, merged))
    assert (drafter.merged is not None) == merged
    features = torch.randn(1, 12, len(drafter.taps) * 64, generator=torch.Generator().manual_seed(0))
    for part, at in zip(features.split([9, 3], 1), (0, 9), strict=True):
        drafter.extend(part, torch.arange(at, at + part.shape[1]))
    ids = torch.randint(0, 300, (branches, 8), generator=torch.Generator().manual_seed(0))
    drafter.plan(branches, 8)
    logits = drafter.forward(ids, torch.arange(12, 20), torch.arange(branches * 8), 64, 3)[1]
    return [[logits, *drafter.cache.layer(0), *drafter.cache.layer(1)]]


@torch.inference_mode()
@pytest.mark.parametrize("backend", ["dense", "cascade", "flashinfer"])
@pytest.mark.parametrize("branches", [1, 3])
def test_merged_drafter_pass_equals_modules(tokenizer, backend, branches):
    target = make_target(tokenizer)
    model = make_drafter(target)
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    own = drafted(model, target, "dense", False, branches)
    compare(drafted(model, target, backend, True, branches), own)
