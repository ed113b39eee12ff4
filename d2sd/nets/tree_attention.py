"""The attention function of a target's layers, registered with transformers: rows of a tree attend to a prefix and the tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface

from d2sd.nets.attention import Backend, attend_with_sinks
from d2sd.nets.caches import CacheWindow, Ring
from d2sd.nets.transformers_calls import refuse_unknown

# Visible keys of the rows of one pass, computed once for all layers.


@dataclass(slots=True)
class PassRows:
    """Rows of a pass over a token tree, or over a chain.

    positions: (R,), the rows' positions in the text; rows at the same depth of a tree have the same position.
    mask: (R, R) bool, entry [n, m] is True if m is n or an ancestor of n; None for a chain. Ancestors have lower row numbers.
    """

    positions: Tensor
    mask: Tensor | None
    _known: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def chain(cls, count: int, device: torch.device) -> PassRows:
        return cls(torch.arange(count, device=device), None)

    def ancestors(self, device: torch.device) -> Tensor:
        """Returns the ancestor mask, also for a chain."""
        if device not in self._known:
            count = len(self.positions)
            chain = self.mask is None
            mask = torch.ones(count, count, dtype=torch.bool).tril() if chain else self.mask
            assert mask is not None
            self._known[device] = mask.to(device)
        found: Tensor = self._known[device]
        return found

    def within(self, window: int, low: int, context: int, device: torch.device) -> tuple[Tensor | None, Tensor]:
        """Returns two masks for a sliding window of ``window`` tokens, which includes the row itself.

        The first mask is over the C = context − low prefix slots from ``low`` to ``context`` − 1 (slot n has position n): (R, C)
        bool, or None if all are visible. The second mask is over the rows, (R, R) bool.
        """
        key = (window, low, context, device)
        if key not in self._known:
            positions = self.positions.to(device)
            distance = positions[:, None] - torch.arange(low, context, device=device)
            own = self.ancestors(device)
            if len(positions) > window:
                own = own & (positions[:, None] - positions < window)
            # the last row is at most len(positions) - 1 positions after the first one
            reached = context + len(positions) - 1 - low < window
            self._known[key] = None if reached else distance < window, own
        found: tuple[Tensor | None, Tensor] = self._known[key]
        return found

    def convolved(self, kernel: int, device: torch.device) -> Tensor:
        """Returns the indices of the ``kernel`` inputs that a causal convolution reads along each row's path, (R, kernel).

        Indices refer to a list of the text's last kernel − 1 inputs, followed by the rows' inputs. Each row's own index is last.
        """
        key = (kernel, device)
        if key not in self._known:
            count, before = len(self.positions), kernel - 1
            numbers = torch.arange(count, device=device)
            strict = self.ancestors(device).tril(-1)
            # each row's parent; -1 for the root, whose predecessor is the text's last input
            parents = torch.where(strict, numbers, -1).amax(-1)
            above = torch.cat([torch.arange(-1, before - 1, device=device), parents + before])
            places = [numbers + before]
            for _ in range(before):
                places.append(above[places[-1]])
            self._known[key] = torch.stack(places[::-1], -1)
        found: Tensor = self._known[key]
        return found


# Causal chains with a sliding window or sinks, computed without a mask over the whole text.


ROWS = 512  # rows per part; limits the size of masks and scores


def attend_windowed(
    query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None, sinks: Tensor | None
) -> Tensor:
    """Returns causal attention of R rows over S keys. The last R keys belong to the rows.

    query: (B, H, R, D).
    key, value: (B, KV heads, S, D).
    window: number of keys that a row sees, including its own; None for all keys.
    sinks: (H,), see ``d2sd.nets.attention``; None without sinks.
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


def attend_ring(query: Tensor, key: Tensor, value: Tensor, scale: float, seen: Tensor, sinks: Tensor | None) -> Tensor:
    """Returns attention of one token per text over the visible slots of its text.

    query: (B, H, 1, D).
    key, value: (B, KV heads, S, D).
    seen: (B, 1, 1, S) bool, True = visible.
    sinks: (H,), see ``d2sd.nets.attention``; None without sinks.
    """
    if sinks is not None:
        return attend_with_sinks(query, key, value, seen, scale, sinks)
    grouped = query.reshape(query.shape[0], key.shape[1], -1, query.shape[3])
    return F.scaled_dot_product_attention(grouped, key, value, attn_mask=seen, scale=scale).reshape(query.shape)


# The function that transformers calls.


ATTENTION = "token_tree"


def tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    backend: Backend | None = None,
    tree_mask: Tensor | None = None,
    window: CacheWindow | Ring | None = None,
    rows: PassRows | None = None,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Returns attention of R new rows over C cached keys and the rows' own keys. Without ``tree_mask``, the rows are a causal chain.

    sliding_window: number of tokens that a row sees; passed by layers with a sliding window.
    s_aux: sinks (H,); passed by layers with sinks.
    """
    if attention_mask is not None:  # transformers creates no mask for this function
        others["attention_mask"] = attention_mask
    refuse_unknown("attention", others)
    count, scale = query.shape[2], query.shape[-1] ** -0.5 if scaling is None else scaling
    if isinstance(window, Ring):
        return attend_ring(query, key, value, scale, window.seen(sliding_window), s_aux).transpose(1, 2), None
    context = key.shape[2] - count if window is None else key.shape[2]
    limited = sliding_window is not None or s_aux is not None
    filled = None if window is None else window.filled
    if count == 1 and filled is not None and not limited and hasattr(backend, "plan"):
        assert backend is not None
        out = backend(query, (key, value), None, None, scale, None, filled)
    elif count == 1 and not limited:
        # heads with the same keys become rows of one product, so keys and values are not repeated
        grouped = query.reshape(query.shape[0], key.shape[1], -1, query.shape[3])
        mask = None if filled is None else filled[None]
        out = F.scaled_dot_product_attention(grouped, key, value, mask, scale=scale).reshape(query.shape)
    elif limited and (backend is None or tree_mask is None or rows is None):
        out = attend_windowed(query, key, value, scale, sliding_window, s_aux)
    elif backend is None or tree_mask is None:  # a prompt, with an empty cache
        out = F.scaled_dot_product_attention(query, key, value, is_causal=count > 1, scale=scale, enable_gqa=True)
    else:
        own, seen = tree_mask.to(query.device), None if window is None else window.seen
        if rows is not None and sliding_window is not None:
            low = max(0, context - sliding_window + 1) if window is None else 0
            within, own = rows.within(sliding_window, low, context, query.device)
            seen = within if seen is None else seen if within is None else within & seen
            key, value, context = key[:, :, low:], value[:, :, low:], context - low
        if window is None:
            prefix = key[:, :, :context], value[:, :, :context]
            block = key[:, :, context:], value[:, :, context:]
            out = backend(query, prefix, block, own, scale, (key, value), seen, s_aux)
        else:
            out = backend(query, (key, value), window.fresh, own, scale, None, seen, s_aux)
    return out.transpose(1, 2), None


AttentionInterface.register(ATTENTION, tree_attention)
