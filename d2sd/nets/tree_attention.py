"""Attention of a target's layers in one pass: a prompt, a token tree, one row, or one token of each text of a batch.

The function for a pass is chosen once (``pass_attention``). The function that is registered with transformers calls it in every
layer. Packed layers on a CPU (``packed``) do without both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
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


def attend_row(
    query: Tensor, key: Tensor, value: Tensor, scale: float, seen: Tensor | None, sinks: Tensor | None = None
) -> Tensor:
    """Returns attention of one token per text over the visible slots of its text.

    query: (B, H, 1, D).
    key, value: (B, KV heads, S, D).
    seen: (B, 1, 1, S) or (1, S) bool, True = visible; None if all slots are visible.
    sinks: (H,), see ``d2sd.nets.attention``; None without sinks.
    """
    if sinks is not None:
        return attend_with_sinks(query, key, value, seen, scale, sinks)
    # heads with the same keys become rows of one product, so keys and values are not repeated
    grouped = query.reshape(query.shape[0], key.shape[1], -1, query.shape[3])
    return F.scaled_dot_product_attention(grouped, key, value, seen, scale=scale).reshape(query.shape)


# The attention function of a pass: (query, keys, values, scale, window, sinks) → (B, H, R, D).
# Keys and values are what the pass's cache returned for the layer. window and sinks: None in layers without them.


PassAttention = Callable[[Tensor, Tensor, Tensor, float, int | None, Tensor | None], Tensor]


def pass_attention(
    count: int, backend: Backend | None, mask: Tensor | None, rows: PassRows | None, window: CacheWindow | None
) -> PassAttention:
    """Returns the attention function of a pass over ``count`` rows.

    backend: attention of a tree's rows; not used without a mask.
    mask: (R, R) bool, the tree mask; None for a causal chain on an empty cache.
    rows: needed if some layers have a window.
    window: the cache of a fixed-shape pass; None if the cache's views end with the pass's rows.
    """
    if backend is None or mask is None:
        return attend_chain
    if window is None:
        tree = partial(_attend_tree, backend, mask, rows)
    else:
        tree = partial(_attend_tree_in_window, backend, mask, rows, window)
    return partial(_attend_one, backend, window, tree) if count == 1 else tree


def attend_chain(
    query: Tensor, key: Tensor, value: Tensor, scale: float, size: int | None, sinks: Tensor | None
) -> Tensor:
    """Returns causal attention of a prompt."""
    if size is not None or sinks is not None:
        return attend_windowed(query, key, value, scale, size, sinks)
    causal = query.shape[2] > 1
    return F.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale, enable_gqa=True)


def attend_ring(
    ring: Ring, query: Tensor, key: Tensor, value: Tensor, scale: float, size: int | None, sinks: Tensor | None
) -> Tensor:
    """Returns attention of one token of each text of a batch."""
    return attend_row(query, key, value, scale, ring.seen(size), sinks)


def _attend_one(
    backend: Backend, window: CacheWindow | None, tree: PassAttention, query: Tensor, key: Tensor, value: Tensor, scale: float,
    size: int | None, sinks: Tensor | None,
) -> Tensor:  # fmt: skip
    if size is not None or sinks is not None:
        return tree(query, key, value, scale, size, sinks)
    filled = None if window is None else window.filled
    if filled is not None and hasattr(backend, "plan"):
        return backend(query, (key, value), None, None, scale, None, filled)
    return attend_row(query, key, value, scale, None if filled is None else filled[None])


def _attend_tree(
    backend: Backend, mask: Tensor, rows: PassRows | None, query: Tensor, key: Tensor, value: Tensor, scale: float,
    size: int | None, sinks: Tensor | None,
) -> Tensor:  # fmt: skip
    own, seen, context = mask.to(query.device), None, key.shape[2] - query.shape[2]
    if size is not None and rows is not None:
        low = max(0, context - size + 1)
        seen, own = rows.within(size, low, context, query.device)
        key, value, context = key[:, :, low:], value[:, :, low:], context - low
    prefix, block = ((key[:, :, at], value[:, :, at]) for at in (slice(context), slice(context, None)))
    return backend(query, prefix, block, own, scale, (key, value), seen, sinks)


def _attend_tree_in_window(
    backend: Backend, mask: Tensor, rows: PassRows | None, window: CacheWindow, query: Tensor, key: Tensor, value: Tensor,
    scale: float, size: int | None, sinks: Tensor | None,
) -> Tensor:  # fmt: skip
    own, seen = mask.to(query.device), window.seen
    if size is not None and rows is not None:
        within, own = rows.within(size, 0, key.shape[2], query.device)
        seen = seen if within is None else within & seen
    return backend(query, (key, value), window.fresh, own, scale, None, seen, sinks)


# The function that transformers calls.


ATTENTION = "token_tree"


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    attend: PassAttention = attend_chain,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    rows: PassRows | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Calls ``attend``, the attention function of the pass.

    sliding_window: number of tokens that a row sees; passed by layers with a sliding window.
    s_aux: sinks (H,); passed by layers with sinks.
    rows: not used; layers with states read it (``d2sd.nets.linear_attention``).
    """
    if attention_mask is not None:  # transformers creates no mask for this function
        others["attention_mask"] = attention_mask
    refuse_unknown("attention", others)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend(query, key, value, scale, sliding_window, s_aux).transpose(1, 2), None


AttentionInterface.register(ATTENTION, attention)
