"""Attention of a target's layers in one pass: over a prompt, a token tree, or one token of each text of a batch.

A pass has one attention function (``PassAttention``), which ``attention`` calls in every layer. transformers knows ``attention``
under the name ``ATTENTION``. Packed layers on a CPU (``d2sd.nets.packed``) use neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface

from d2sd.nets.attention import Backend, attend_masked
from d2sd.nets.caches import BatchPass, CacheWindow
from d2sd.nets.flashinfer import FlashInfer
from d2sd.nets.transformers_calls import refuse_unknown

# Visible keys of the rows of one pass, computed once for all layers.


@dataclass(slots=True)
class PassRows:
    """The rows of a pass over a token tree.

    positions: (R,), the rows' positions in the text; rows at the same depth of a tree have the same position.
    mask: (R, R) bool; mask[n, m] is True if m is n or an ancestor of n. Ancestors have lower row numbers.
    """

    positions: Tensor
    mask: Tensor
    _windows: dict[Any, tuple[Tensor | None, Tensor]] = field(default_factory=dict)
    _paths: dict[Any, Tensor] = field(default_factory=dict)

    @classmethod
    def chain(cls, count: int, device: torch.device) -> PassRows:
        """Returns the rows of a tree without branches, at positions 0 … ``count`` − 1."""
        return cls(torch.arange(count, device=device), torch.ones(count, count, dtype=torch.bool, device=device).tril())

    def within(self, window: int, low: int, context: int, device: torch.device) -> tuple[Tensor | None, Tensor]:
        """Returns two masks for a sliding window of ``window`` tokens, which includes the row itself.

        The first mask is over the C = context − low prefix slots from ``low`` to ``context`` − 1 (slot n has position n): (R, C)
        bool, or None if all are visible. The second mask is over the rows, (R, R) bool.
        """
        key = (window, low, context, device)
        if key not in self._windows:
            positions, mask = self.positions.to(device), self.mask.to(device)
            distance = positions[:, None] - torch.arange(low, context, device=device)
            if len(positions) > window:
                mask = mask & (positions[:, None] - positions < window)
            # the last row is at most len(positions) - 1 positions after the first one
            all_visible = context + len(positions) - 1 - low < window
            self._windows[key] = None if all_visible else distance < window, mask
        return self._windows[key]

    def convolved(self, kernel: int, device: torch.device) -> Tensor:
        """Returns the indices of the ``kernel`` inputs that a causal convolution reads along each row's path, (R, kernel).

        Indices refer to a list of the text's last kernel − 1 inputs, followed by the rows' inputs. Each row's own index is last.
        """
        key = (kernel, device)
        if key not in self._paths:
            before = kernel - 1
            numbers = torch.arange(len(self.positions), device=device)
            # each row's parent; -1 for the root, whose predecessor is the text's last input
            parents = torch.where(self.mask.to(device).tril(-1), numbers, -1).amax(-1)
            predecessors = torch.cat([torch.arange(-1, before - 1, device=device), parents + before])
            places = [numbers + before]
            for _ in range(before):
                places.append(predecessors[places[-1]])
            self._paths[key] = torch.stack(places[::-1], -1)
        return self._paths[key]


# Attention functions of a pass. The keys and values are those that the pass's cache returned for the layer.


class LayerOptions(NamedTuple):
    """Options of attention that differ between layers.

    scale: factor of the scores.
    window: number of tokens that a row sees, including itself; None without a sliding window.
    sinks: (H,), see ``d2sd.nets.attention``; None without sinks.
    """

    scale: float
    window: int | None = None
    sinks: Tensor | None = None


# query (B, H, R, D), keys and values (B, KV heads, S, D), options of the layer → (B, H, R, D)
PassAttention = Callable[[Tensor, Tensor, Tensor, LayerOptions], Tensor]
CHUNK = 512  # rows per part of a prompt; limits the size of masks and scores


def attend_chain(query: Tensor, key: Tensor, value: Tensor, layer: LayerOptions) -> Tensor:
    """Returns causal attention of a prompt's rows, or of one row after a text. The last R keys are those of the R rows.

    With a window or sinks, no mask over the whole prompt is created.
    """
    scale, window, sinks = layer
    rows, before = query.shape[2], key.shape[2] - query.shape[2]
    if window is None and sinks is None:
        return F.scaled_dot_product_attention(query, key, value, is_causal=rows > 1, scale=scale, enable_gqa=True)
    parts = []
    for begin in range(0, rows, CHUNK):
        end = min(begin + CHUNK, rows)
        low = 0 if window is None else max(0, before + begin - window + 1)
        mask = None
        if end - begin > 1:
            positions = torch.arange(before + begin, before + end, device=query.device)[:, None]
            distance = positions - torch.arange(low, before + end, device=query.device)
            mask = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        keys, values = (x[:, :, low : before + end] for x in (key, value))
        parts.append(attend_masked(query[:, :, begin:end], keys, values, mask, scale, sinks))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def attend_batch(held: BatchPass, query: Tensor, key: Tensor, value: Tensor, layer: LayerOptions) -> Tensor:
    """Returns the attention of one row per text to the row's own text, in a ``BatchPass``."""
    seen = held.seen(layer.window)
    if layer.sinks is not None:
        return attend_masked(query, key, value, seen, layer.scale, layer.sinks)
    if query.device.type != "cpu":
        return attend_row(query, key, value, layer.scale, seen)
    # for a few rows per text, torch's fused attention reads the keys slower than two products do
    grouped = query.reshape(query.shape[0], key.shape[1], -1, query.shape[3]).to(key.dtype)
    scores = ((grouped @ key.mT).float() * layer.scale).masked_fill_(~seen, float("-inf"))
    return (scores.softmax(-1).to(value.dtype) @ value).reshape(query.shape)


def attend_row(query: Tensor, key: Tensor, value: Tensor, scale: float, seen: Tensor | None) -> Tensor:
    """Returns the attention of one row per text, (B, H, 1, D).

    seen: the visible slots, (B, 1, 1, S) or (1, S) bool; None if all are visible.
    """
    # heads with the same keys become rows of one product, so keys and values are not repeated
    grouped = query.reshape(query.shape[0], key.shape[1], -1, query.shape[3])
    return F.scaled_dot_product_attention(grouped, key, value, seen, scale=scale).reshape(query.shape)


@dataclass(frozen=True, slots=True)
class TreeAttention:
    """The attention function of a pass over a token tree: rows see the cached text and their ancestors.

    window: the cache of a fixed-shape pass; None if the keys and values that the cache returns end with the pass's own rows.
    """

    backend: Backend
    rows: PassRows
    window: CacheWindow | None

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, layer: LayerOptions) -> Tensor:
        scale, size, sinks = layer
        rows, window, device = self.rows, self.window, query.device
        if query.shape[2] == 1 and size is None and sinks is None:
            filled = None if window is None else window.filled
            if filled is not None and isinstance(self.backend, FlashInfer):
                return self.backend(query, (key, value), None, None, scale, None, filled)
            return attend_row(query, key, value, scale, None if filled is None else filled[None])
        mask = rows.mask.to(device)
        if window is not None:
            seen = window.seen
            if size is not None:
                within, mask = rows.within(size, 0, key.shape[2], device)
                seen = seen if within is None else within & seen
            return self.backend(query, (key, value), window.fresh, mask, scale, None, seen, sinks)
        within, context = None, key.shape[2] - query.shape[2]
        if size is not None:
            low = max(0, context - size + 1)
            within, mask = rows.within(size, low, context, device)
            key, value, context = key[:, :, low:], value[:, :, low:], context - low
        prefix, block = ((key[:, :, part], value[:, :, part]) for part in (slice(context), slice(context, None)))
        return self.backend(query, prefix, block, mask, scale, (key, value), within, sinks)


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
    """Calls ``attend``, the attention function of the pass. Returns its output, (B, R, H, D), and None in place of weights.

    sliding_window, s_aux: window and sinks of ``LayerOptions``; passed only by layers that have them.
    rows: not used; layers with states read it (``d2sd.nets.linear_attention``).
    """
    if attention_mask is not None:  # transformers creates no mask for this function
        others["attention_mask"] = attention_mask
    refuse_unknown("attention", others)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend(query, key, value, LayerOptions(scale, sliding_window, s_aux)).transpose(1, 2), None


AttentionInterface.register(ATTENTION, attention)
