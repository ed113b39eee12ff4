"""Attention of B blocks (branches) of R rows. Every row attends to its own block and to a prefix that all blocks share.

All backends have this signature:

``attend(query, prefix, block, block_mask, scale, joined, seen, sinks)``

* query: (B, H, R, D);
* prefix: keys and values of C slots, (1, KV heads, C, D) each; C may be 0;
* block: keys and values of the rows, (B, KV heads, R, D) each;
* block_mask: (R, R) bool, [n, m] is True if row n sees row m of its block; None if every row sees its whole block;
* joined: views of keys and values of prefix and block together, (1, KV heads, C+R, D) each; None if these are not adjacent;
* seen: visible slots of the prefix; None if all are visible. (C,) bool: filled slots of a prefix that is padded to a fixed
  shape; (R, C) bool: slots in each row's sliding window;
* sinks: (H,), an extra softmax logit for each head, which has no value vector; None without sinks;
* returns (B, H, R, D).

``cascade`` and ``dense`` are plain torch and run on any device; ``flashinfer`` needs a CUDA GPU and a compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from d2sd.errors import require
from d2sd.nets import flashinfer
from d2sd.nets.lean import KeyValue

Backend = Callable[..., Tensor]  # signature: see the module's docstring


def attend_dense(
    query: Tensor,
    prefix: KeyValue,
    block: KeyValue,
    block_mask: Tensor | None,
    scale: float,
    joined: KeyValue | None = None,
    seen: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Computes attention over prefix and block in one product with the full (R, C+R) mask. The other backends are tested against
    it.
    """
    batch, _, rows, _ = query.shape
    context = prefix[0].shape[2]
    if joined is None:
        key, value = (torch.cat([p.expand(batch, -1, -1, -1), b], dim=2) for p, b in zip(prefix, block, strict=True))
    else:
        key, value = joined
    mask = None
    if block_mask is not None or seen is not None:
        ones = partial(torch.ones, dtype=torch.bool, device=query.device)
        prefix_mask = ones(context) if seen is None else seen
        block_mask = ones(rows, rows) if block_mask is None else block_mask
        mask = torch.cat([prefix_mask.expand(rows, -1), block_mask], dim=1)
    return attend_masked(query, key, value, mask, scale, sinks)


def attend_cascade(
    query: Tensor,
    prefix: KeyValue,
    block: KeyValue,
    block_mask: Tensor | None,
    scale: float,
    joined: KeyValue | None = None,
    seen: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Computes attention in two levels and merges the results; ``joined`` is not used.

    Level 1 is one product: all rows of all branches over the shared prefix. In level 2, every row attends to its own block under
    the block mask. The results of both levels are averaged. A level's weight is proportional to exp(log-sum-exp) of its scores,
    which is its share of the softmax over all keys, so the average is exact.
    """
    batch, heads, rows, dim = query.shape
    kv_heads = block[0].shape[1]
    group = heads // kv_heads
    grouped = (query * scale).reshape(batch, kv_heads, group * rows, dim)
    mask = None if block_mask is None else block_mask.repeat(group, 1)
    out, lse = _level(grouped, *block, mask)
    if prefix[0].shape[2]:
        # all branches share the prefix, so their rows form one product
        shared = grouped.transpose(0, 1).reshape(1, kv_heads, batch * group * rows, dim)
        if seen is not None and seen.dim() == 2:
            seen = seen.repeat(batch * group, 1)
        above, above_lse = _level(shared, *prefix, seen)
        above = above.view(kv_heads, batch, group * rows, dim).transpose(0, 1)
        above_lse = above_lse.view(kv_heads, batch, group * rows, 1).transpose(0, 1)
        weight = torch.sigmoid(above_lse - lse)  # of level 1
        out = weight * above + (1 - weight) * out
        lse = lse.logaddexp(above_lse)
    if sinks is not None:
        out = _with_sinks(out, lse, sinks, rows)
    return out.to(query.dtype).reshape(query.shape)


def _level(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> KeyValue:
    """Returns attention over the keys of one level, (…, R, D), and the log-sum-exp of its scores, (…, R, 1), both float32."""
    scores = _product(query, key.transpose(-1, -2))
    if mask is not None:
        # not -inf: with a padded prefix without filled slots, this level's weight must become 0 and not NaN
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    lse = scores.logsumexp(-1, keepdim=True)
    return _product((scores - lse).exp(), value), lse


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Returns a @ b, (B, H, …), in float32. On a GPU, 16-bit inputs are multiplied without a float32 copy of ``b``."""
    if b.device.type == "cpu" or b.dtype == torch.float32:
        return a.float() @ b.float()
    product = torch.bmm(a.to(b.dtype).flatten(0, 1), b.flatten(0, 1), out_dtype=torch.float32)
    return product.unflatten(0, a.shape[:2])


def attend_masked(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, sinks: Tensor | None
) -> Tensor:
    """Returns scaled dot-product attention, (B, H, R, D). torch's own function is used if there are no sinks.

    key, value: (B, KV heads, S, D).
    mask: (R, S) or (B, 1, 1, S) bool, True where a row sees a key; None if all rows see all keys.
    sinks: (H,); None without sinks.
    """
    if sinks is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True)
    batch, heads, rows, dim = query.shape
    kv_heads = key.shape[1]
    if mask is not None and mask.dim() == 2:
        mask = mask.repeat(heads // kv_heads, 1)
    grouped = (query * scale).reshape(batch, kv_heads, -1, dim)
    out, lse = _level(grouped, key.float(), value.float(), mask)
    return _with_sinks(out, lse, sinks, rows).to(query.dtype).reshape(query.shape)


def _with_sinks(out: Tensor, lse: Tensor, sinks: Tensor, rows: int) -> Tensor:
    """Returns attention over keys and sinks, given the result of ``_level``, whose heads are grouped by key-value head."""
    repeated = sinks.float().view(1, out.shape[1], -1, 1).expand(-1, -1, -1, rows).reshape(1, out.shape[1], -1, 1)
    return out * torch.sigmoid(lse - repeated)  # the keys' share of the softmax


BACKENDS: dict[str, Backend] = {"cascade": attend_cascade, "dense": attend_dense}  # plain torch, for any device
NAMES = (*BACKENDS, "flashinfer")


def choose(name: str, device: torch.device, dtype: torch.dtype, head_dim: int, plain: bool = True) -> str:
    """Returns the name of the backend to use.

    name: a backend, or "auto": dense on a CPU; on a GPU, flashinfer if it can be used, else cascade.
    plain: whether the target has neither sliding windows nor attention sinks.

    Raises ``InputError`` if flashinfer is requested and cannot be used.
    """
    if name == "auto" and device.type == "cpu":
        return "dense"
    if name not in ("auto", "flashinfer"):
        return name
    reason = flashinfer.obstacle(device, dtype, head_dim)
    if reason is None and not plain:
        reason = "supports neither sliding windows nor attention sinks, and this target has one of them"
    if reason and name == "auto":
        return "cascade"
    require(not reason, f"the attention backend flashinfer {reason}; use cascade or auto")
    return "flashinfer"


def make_backend(name: str, fixed: bool = False) -> Backend:
    """Returns the backend of this name for one generation.

    fixed: whether passes have fixed shapes and may be captured.
    """
    return flashinfer.FlashInfer(fixed) if name == "flashinfer" else BACKENDS[name]
