"""Attention of block rows over a shared prefix plus their own block, behind one signature.

``attend(query, prefix, block, block_mask, scale, joined)``

* query: (B, H, R, D); prefix: keys and values (1, KV heads, C, D), seen by every row, C may be 0;
* block: keys and values (B, KV heads, R, D); block_mask: (R, R) bool, True = visible, None = all visible;
* joined: the same keys and values as one view (1, KV heads, C+R, D) where they lie side by side, else None;
* returns (B, H, R, D).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from d2sd.attention.cascade import attend as cascade
from d2sd.attention.dense import attend as dense

KeyValue = tuple[Tensor, Tensor]
Backend = Callable[[Tensor, KeyValue, KeyValue, Tensor | None, float, KeyValue | None], Tensor]

BACKENDS: dict[str, Backend] = {"cascade": cascade, "dense": dense}
