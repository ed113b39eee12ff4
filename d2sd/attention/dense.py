"""Reference backend: one masked attention over prefix and block together."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from d2sd.attention.sinks import attend_with_sinks


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
    """Scaled dot-product attention with the full (R, C+R) mask; see ``d2sd.attention`` for shapes."""
    batch, _, rows, _ = query.shape
    context = prefix[0].shape[2]
    if joined is None:
        key, value = (torch.cat([p.expand(batch, -1, -1, -1), b], dim=2) for p, b in zip(prefix, block, strict=True))
    else:
        key, value = joined
    mask = None
    if block_mask is not None or seen is not None:
        device = query.device
        above = torch.ones(context, dtype=torch.bool, device=device) if seen is None else seen
        own = torch.ones(rows, rows, dtype=torch.bool, device=device) if block_mask is None else block_mask
        mask = torch.cat([above.expand(rows, -1), own], dim=1)
    if sinks is not None:
        return attend_with_sinks(query, key, value, mask, scale, sinks)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True)
