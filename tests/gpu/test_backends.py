"""On a GPU all attention backends agree, captured or not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from d2sd.bench.shapes import SHAPES, Shape
from d2sd.bench.timings import random_engine
from d2sd.config import DecodeConfig
from d2sd.decoding.verifier import Verifier
from d2sd.errors import InputError
from d2sd.nets.attention import NAMES, choose, make_backend
from d2sd.nets.attention import attend_dense as dense
from d2sd.nets.passes import Passes
from d2sd.tree.block import Block
from d2sd.tree.tree import merge_drafts

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

GPU = torch.device("cuda")
TOLERANCES = {torch.float32: 2e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}


def usable(name, dtype, dim):
    try:
        return choose(name, GPU, dtype, dim)
    except InputError as error:
        pytest.skip(str(error))


def random_tree_mask(rows, seed):
    random = np.random.default_rng(seed)
    mask = np.eye(rows, dtype=bool)
    for node in range(1, rows):
        mask[node] |= mask[random.integers(0, node)]
    return torch.from_numpy(mask).to(GPU)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("group", [1, 2, 4, 8])
@pytest.mark.parametrize(("context", "branches"), [(1, 1), (17, 1), (700, 4), (1024, 1), (32768, 1)])
def test_attention_backend_agrees_with_dense_float32(name, dtype, dim, group, context, branches):
    usable(name, dtype, dim)
    torch.manual_seed(context + group)
    kv_heads, rows = 2, 61
    with GPU:
        query = torch.randn(branches, kv_heads * group, rows, dim).to(dtype)
        prefix = tuple(torch.randn(1, kv_heads, context + 9, dim).to(dtype)[:, :, :context] for _ in range(2))
        block = tuple(torch.randn(branches, kv_heads, rows, dim).to(dtype) for _ in range(2))
    mask = random_tree_mask(rows, seed=context)
    wide = [tuple(t.float() for t in pair) for pair in (prefix, block)]
    for shown in (mask, None):
        out = make_backend(name)(query, prefix, block, shown, dim**-0.5)
        expected = dense(query.float(), *wide, shown, dim**-0.5)
        torch.testing.assert_close(out.float(), expected, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_captured_logits_equal_eager_for_growing_text(name, monkeypatch):
    """One graph is replayed for other trees and lengths; its logits equal the logits of eager dense passes."""
    monkeypatch.setitem(SHAPES, "small", Shape("qwen3", 256, 512, 4, 8, 2, 64, 1000, False, drafter_layers=2))
    usable(name, torch.float16, 64)
    engine = random_engine("small", "float16", "cuda", "eager", 4096)
    captured = Verifier(engine.models.target, Passes("captured", name, 2048, engine.models.target.device))
    eager = Verifier(engine.models.target, Passes("eager", "dense", 2048, engine.models.target.device))
    config = DecodeConfig("d2sd", num_branches=4)
    assert engine.resolve(config).block_size == 16
    random = np.random.default_rng(0)
    for verifier in (captured, eager):
        verifier.read([int(i) for i in np.arange(1, 200)])
    for _ in range(60):
        blocks = []
        for _ in range(3):
            ids = tuple(int(i) for i in random.integers(1, 6, 8))
            blocks.append(Block("first", 0, ids, (0.5,) * 8, [], []))
        tree = merge_drafts(int(random.integers(1, 900)), blocks)
        one, other = captured.logits(tree), eager.logits(tree)
        torch.testing.assert_close(one, other, atol=6e-2, rtol=6e-2)
        kept = [0, *tree.path(len(tree) - 1)[: int(random.integers(0, 8))]]
        for verifier in (captured, eager):
            verifier.cache.commit(kept)
    assert captured.passes.mode == "captured"  # it did not fall back
