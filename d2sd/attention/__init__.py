"""Attention of block rows over a shared prefix plus their own block, behind one signature.

``attend(query, prefix, block, block_mask, scale, joined, seen, sinks)``

* query: (B, H, R, D); prefix: keys and values (1, KV heads, C, D), seen by every row, C may be 0;
* block: keys and values (B, KV heads, R, D); block_mask: (R, R) bool, True = visible, None = all visible;
* joined: the same keys and values as one view (1, KV heads, C+R, D) where they lie side by side, else None;
* seen: (C,) bool, the prefix slots that count where the prefix is padded to a fixed shape, or (R, C) bool where windows make
  rows see different ones, None = all;
* sinks: (H,), one logit per head that is part of the softmax without a value, None = none;
* returns (B, H, R, D).

``cascade`` and ``dense`` are plain torch and run anywhere; ``flashinfer`` needs a CUDA GPU and a compiler.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from d2sd.attention.cascade import attend as cascade
from d2sd.attention.dense import attend as dense
from d2sd.errors import InputError
from d2sd.nets import flashinfer

KeyValue = tuple[Tensor, Tensor]


class Backend(Protocol):
    """The call signature of an attention backend, as above."""

    def __call__(
        self,
        query: Tensor,
        prefix: KeyValue,
        block: KeyValue,
        block_mask: Tensor | None,
        scale: float,
        joined: KeyValue | None = None,
        seen: Tensor | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor: ...


BACKENDS: dict[str, Backend] = {"cascade": cascade, "dense": dense}  # those that run anywhere
NAMES = (*BACKENDS, "flashinfer")


def choose(name: str, device: torch.device, dtype: torch.dtype, head_dim: int, plain: bool = True) -> str:
    """Returns the backend for a name or "auto": dense on a CPU, flashinfer on a GPU that can run it, otherwise cascade.

    plain: whether all rows of the target see the whole prefix, without sinks.

    Raises ``InputError`` if flashinfer is requested and cannot be used.
    """
    if name == "auto" and device.type == "cpu":
        return "dense"
    if name not in ("auto", "flashinfer"):
        return name
    reason = flashinfer.obstacle(device, dtype, head_dim)
    if reason is None and not plain:
        reason = "is used without sliding windows and attention sinks only, and this target has them"
    if name == "auto":
        return "cascade" if reason else "flashinfer"
    if reason:
        raise InputError(f"the attention backend flashinfer {reason}; use cascade, or auto to have it chosen")
    return "flashinfer"


def make_backend(name: str, fixed: bool = False) -> Backend:
    """Returns a backend by its name, for one generation; ``fixed``: its passes have fixed shapes and may be captured."""
    return flashinfer.FlashInfer(fixed) if name == "flashinfer" else BACKENDS[name]
