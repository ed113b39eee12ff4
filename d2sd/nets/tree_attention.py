"""The attention function that a target's layers call, registered with transformers: rows of a token tree after a prefix."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface

from d2sd.attention import Backend
from d2sd.attention.windowed import attend_windowed
from d2sd.models.rows import PassRows
from d2sd.nets.caches import CacheWindow

ATTENTION = "token_tree"


def _tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    backend: Backend | None = None,
    tree_mask: Tensor | None = None,
    window: CacheWindow | None = None,
    rows: PassRows | None = None,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of R new rows over C cached and R own keys; without ``tree_mask`` the rows are a causal chain.

    sliding_window, s_aux: arguments of some types' layers: number of tokens that a row sees, and sinks (H,).
    """
    count = query.shape[2]
    context = key.shape[2] - count
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    if sliding_window is not None or s_aux is not None:
        out = _limited(query, key, value, scale, backend, tree_mask, window, rows, sliding_window, s_aux)
    elif window is not None and backend is not None:
        out = backend(query, (key, value), window.fresh, tree_mask, scale, None, window.seen)
    elif count == 1:  # heads that share keys become rows of one product: keys and values are not repeated for each
        grouped = query.reshape(query.shape[0], key.shape[1], -1, query.shape[3])
        out = F.scaled_dot_product_attention(grouped, key, value, scale=scale).reshape(query.shape)
    elif backend is None or tree_mask is None:  # a prompt read from an empty cache
        out = F.scaled_dot_product_attention(query, key, value, is_causal=count > 1, scale=scale, enable_gqa=True)
    else:
        prefix = key[:, :, :context], value[:, :, :context]
        block = key[:, :, context:], value[:, :, context:]
        out = backend(query, prefix, block, tree_mask.to(query.device), scale, (key, value))
    return out.transpose(1, 2), None


def _limited(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    backend: Backend | None,
    tree_mask: Tensor | None,
    window: CacheWindow | None,
    rows: PassRows | None,
    size: int | None,
    sinks: Tensor | None,
) -> Tensor:
    """``_tree_attention`` in a layer with a sliding window of ``size`` tokens, or with ``sinks``."""
    count = query.shape[2]
    context = key.shape[2] - count
    if backend is None or rows is None or tree_mask is None:
        return attend_windowed(query, key, value, scale, size, sinks)
    own: Tensor | None = tree_mask.to(query.device)
    if window is not None:
        seen: Tensor | None = window.seen
        if size is not None:
            within, own = rows.within(size, 0, key.shape[2], query.device)
            seen = window.seen if within is None else within & window.seen
        return backend(query, (key, value), window.fresh, own, scale, None, seen, sinks)
    low = 0 if size is None else max(0, context - size + 1)
    seen = None
    if size is not None:
        seen, own = rows.within(size, low, context, query.device)
    key, value, context = key[:, :, low:], value[:, :, low:], context - low
    prefix = key[:, :, :context], value[:, :, :context]
    block = key[:, :, context:], value[:, :, context:]
    return backend(query, prefix, block, own, scale, (key, value), seen, sinks)


AttentionInterface.register(ATTENTION, _tree_attention)
