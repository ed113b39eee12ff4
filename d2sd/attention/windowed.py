"""Attention of a causal chain with a sliding window or sinks, without a mask over the whole text."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from d2sd.attention.sinks import attend_with_sinks

ROWS = 512  # at once: so many rows times the keys that they see are held


def attend_windowed(
    query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None, sinks: Tensor | None
) -> Tensor:
    """Attention of R rows, the last of S keys, each over its own key and those before it.

    query: (B, H, R, D); key, value: (B, KV heads, S, D).
    window: how many keys a row sees, its own included; None for all.
    sinks: (H,), see ``d2sd.attention.sinks``; None for none.
    """
    rows, before = query.shape[2], key.shape[2] - query.shape[2]
    parts = []
    for begin in range(0, rows, ROWS):
        end = min(begin + ROWS, rows)
        low = 0 if window is None else max(0, before + begin - window + 1)
        keys, values = (x[:, :, low : before + end] for x in (key, value))
        mask = None
        if end - begin > 1:
            places = torch.arange(before + begin, before + end, device=query.device)[:, None]
            distance = places - torch.arange(low, before + end, device=query.device)
            mask = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        part = query[:, :, begin:end]
        if sinks is None:
            parts.append(
                F.scaled_dot_product_attention(part, keys, values, attn_mask=mask, scale=scale, enable_gqa=True)
            )
        else:
            parts.append(attend_with_sinks(part, keys, values, mask, scale, sinks))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)
