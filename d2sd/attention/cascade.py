"""Two-level cascade attention in plain torch.

Level 1: all rows of all branches over the shared prefix, without a mask, in one product. Level 2: every row over
its own block under the block mask. The two are merged by their log-sum-exp weights (natural logarithm), which
is exact: softmax over the union = lse-weighted mean of the softmaxes over the parts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from d2sd.attention.sinks import sink_rows


def attend(
    query: Tensor,
    prefix: tuple[Tensor, Tensor],
    block: tuple[Tensor, Tensor],
    block_mask: Tensor | None,
    scale: float,
    joined: tuple[Tensor, Tensor] | None = None,
    seen: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention merged from two levels; see ``d2sd.attention`` for shapes. ``joined`` is not needed."""
    batch, heads, rows, dim = query.shape
    kv_heads = block[0].shape[1]
    group = heads // kv_heads
    grouped = (query * scale).reshape(batch, kv_heads, group * rows, dim)
    mask = None if block_mask is None else block_mask.repeat(group, 1)
    out, lse = _level(grouped, *block, mask)
    if prefix[0].shape[2]:
        # the prefix is shared: branches become rows of one product
        shared = grouped.transpose(0, 1).reshape(1, kv_heads, batch * group * rows, dim)
        if seen is not None and seen.dim() == 2:
            seen = seen.repeat(batch * group, 1)
        above, above_lse = _level(shared, *prefix, seen)
        above = above.view(kv_heads, batch, group * rows, dim).transpose(0, 1)
        above_lse = above_lse.view(kv_heads, batch, group * rows, 1).transpose(0, 1)
        out = merge(above, above_lse, out, lse)
        lse = lse.logaddexp(above_lse)
    if sinks is not None:  # what they take of the softmax over everything
        out = out * torch.sigmoid(lse - sink_rows(sinks, kv_heads, rows))
    return out.to(query.dtype).reshape(batch, heads, rows, dim)


def _level(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attention over one level and its log-sum-exp: (…, R, D) and (…, R, 1), in float32."""
    scores = _product(query, key.transpose(-1, -2))
    if mask is not None:
        # finite: a padded prefix may hold nothing yet, and then this level is to weigh nothing instead of NaN
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    lse = scores.logsumexp(-1, keepdim=True)
    return _product((scores - lse).exp(), value), lse


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Returns a @ b, (B, H, …), in float32; a GPU multiplies 16-bit inputs without converting a long prefix."""
    if b.device.type == "cpu" or b.dtype == torch.float32:
        return a.float() @ b.float()
    product = torch.bmm(a.to(b.dtype).flatten(0, 1), b.flatten(0, 1), out_dtype=torch.float32)
    return product.unflatten(0, a.shape[:2])


def merge(a: Tensor, a_lse: Tensor, b: Tensor, b_lse: Tensor) -> Tensor:
    """Attention over the union of two disjoint key sets from the attention over each."""
    weight = torch.sigmoid(a_lse - b_lse)
    return weight * a + (1 - weight) * b
