"""Attention backends against the definition, computed row by row in float64."""

from __future__ import annotations

import pytest
import torch

from d2sd.nets import tree_attention
from d2sd.nets.attention import BACKENDS
from d2sd.nets.tree_attention import LayerOptions, attend_chain
from tests.unit.drafts import merge_candidates

SINKS = [None, torch.tensor([0.5, -1.0, 3.0, 0.0])]


def inputs(batch, heads, kv_heads, rows, context, dim, seed=0):
    g = torch.Generator().manual_seed(seed)

    def make(*shape):
        return torch.randn(*shape, generator=g)

    prefix = tuple(make(1, kv_heads, context, dim) for _ in range(2))
    block = tuple(make(batch, kv_heads, rows, dim) for _ in range(2))
    return make(batch, heads, rows, dim), prefix, block


def naive(query, prefix, block, mask, scale, seen=None, sinks=None):
    """Attention by its definition, for one row of one head at a time, in float64."""
    batch, heads, rows, _ = query.shape
    group = heads // block[0].shape[1]
    out = torch.zeros(query.shape, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            keys = torch.cat([prefix[0][0, h // group], block[0][b, h // group]]).double()
            values = torch.cat([prefix[1][0, h // group], block[1][b, h // group]]).double()
            for r in range(rows):
                scores = keys @ query[b, h, r].double() * scale
                if mask is not None:
                    scores[prefix[0].shape[2] :][~mask[r]] = float("-inf")
                if seen is not None:
                    scores[: prefix[0].shape[2]][~seen[r]] = float("-inf")
                if sinks is None:
                    out[b, h, r] = scores.softmax(0) @ values
                else:
                    out[b, h, r] = torch.cat([scores, sinks[h : h + 1].double()]).softmax(0)[:-1] @ values
    return out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (8, 1)])
@pytest.mark.parametrize("context", [0, 1, 33])
@pytest.mark.parametrize("batch", [1, 3])
def test_attention_backend_matches_float64_definition(backend, heads, kv_heads, context, batch):
    tree = merge_candidates(0, [[1, 2, 3], [1, 4], [5, 2, 3]])
    mask = torch.from_numpy(tree.ancestor_mask())
    query, prefix, block = inputs(batch, heads, kv_heads, len(tree), context, 16)
    for shown in (mask, None):
        out = BACKENDS[backend](query, prefix, block, shown, 0.25, None)
        torch.testing.assert_close(out.double(), naive(query, prefix, block, shown, 0.25), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "scale", "error"), [
    (torch.bfloat16, 1, 2e-2), (torch.float16, 1, 2e-2), (torch.float32, 1e3, 1e-4),
])  # fmt: skip
def test_cascade_matches_dense_at_half_precision_without_overflow(dtype, scale, error):
    query, prefix, block = inputs(1, 8, 2, 20, 300, 64)
    prefix = (prefix[0] * scale, prefix[1])  # the prefix may have far larger scores than the block
    low = [tuple(x.to(dtype) for x in pair) for pair in (prefix, block)]
    a, b = (BACKENDS[n](query.to(dtype), *low, None, 0.125, None) for n in ("dense", "cascade"))
    torch.testing.assert_close(a.float(), b.float(), atol=error, rtol=error)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("context", [0, 1, 33])
@pytest.mark.parametrize("sinks", SINKS)
def test_attention_backend_ignores_masked_prefix_slots(backend, context, sinks):
    """The prefix is padded to a fixed shape. All rows see the same slots, or each row its own."""
    mask = torch.from_numpy(merge_candidates(0, [[1, 2, 3], [1, 4]]).ancestor_mask())
    query, prefix, block = inputs(2, 4, 2, len(mask), context, 16)
    padded = tuple(torch.cat([p, torch.full((1, 2, 48 - context, 16), 1e4)], 2) for p in prefix)
    same = torch.arange(48) < context
    own = same & (torch.rand(len(mask), 48, generator=torch.Generator().manual_seed(1)) < 0.5)
    own[2] = False  # a row whose window excludes the prefix
    for seen in (same, own):
        for shown in (mask, None):
            out = BACKENDS[backend](query, padded, block, shown, 0.25, None, seen, sinks)
            wanted = naive(query, prefix, block, shown, 0.25, seen[..., :context].expand(len(mask), -1), sinks)
            torch.testing.assert_close(out.double(), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("sinks", SINKS)
@pytest.mark.parametrize("window", [None, 1, 4, 50])
@pytest.mark.parametrize("rows", [1, 11])
def test_attend_chain_in_chunks_matches_definition(monkeypatch, window, sinks, rows):
    monkeypatch.setattr(tree_attention, "CHUNK", 4)
    query, _, (key, value) = inputs(2, 4, 2, 11, 0, 16)
    query = query[:, :, -rows:]
    distance = torch.arange(11)[-rows:, None] - torch.arange(11)
    mask = (distance >= 0) & (distance < (window or 11))
    wanted = naive(query, (key[:1, :, :0], value[:1, :, :0]), (key, value), mask, 0.25, sinks=sinks)
    torch.testing.assert_close(
        attend_chain(query, key, value, LayerOptions(0.25, window, sinks)).double(), wanted, atol=1e-5, rtol=1e-5
    )
