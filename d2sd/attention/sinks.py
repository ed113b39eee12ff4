"""Attention sinks: one learned logit per head that is part of the softmax without a value (gpt-oss)."""

from __future__ import annotations

from torch import Tensor


def attend_with_sinks(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, sinks: Tensor
) -> Tensor:
    """Returns scaled dot-product attention with sinks, (B, H, R, D), for which torch's function has no argument.

    key, value: (B, KV heads, S, D).
    mask: (R, S) bool, True = visible; None to see everything.
    sinks: (H,).
    """
    batch, heads, rows, dim = query.shape
    kv_heads = key.shape[1]
    grouped = (query * scale).reshape(batch, kv_heads, -1, dim)
    scores = grouped.float() @ key.float().transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask.repeat(heads // kv_heads, 1), float("-inf"))
    lse = scores.logsumexp(-1, keepdim=True).logaddexp(sink_rows(sinks, kv_heads, rows))
    return ((scores - lse).exp() @ value.float()).to(query.dtype).reshape(batch, heads, rows, dim)


def sink_rows(sinks: Tensor, kv_heads: int, rows: int) -> Tensor:
    """Sinks (H,) of R rows whose heads are grouped by key-value head, (1, KV heads, H / KV heads · R, 1) float32."""
    return sinks.float().view(1, kv_heads, -1, 1).expand(-1, -1, -1, rows).reshape(1, kv_heads, -1, 1)
