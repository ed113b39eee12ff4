"""Attention of block rows over a shared prefix plus their own block, behind one signature.

``attend(query, prefix, block, block_mask, scale, joined, seen)``

* query: (B, H, R, D); prefix: keys and values (1, KV heads, C, D), seen by every row, C may be 0;
* block: keys and values (B, KV heads, R, D); block_mask: (R, R) bool, True = visible, None = all visible;
* joined: the same keys and values as one view (1, KV heads, C+R, D) where they lie side by side, else None;
* seen: (C,) bool, the prefix slots that count where the prefix is padded to a fixed shape, None = all;
* returns (B, H, R, D).

``cascade`` and ``dense`` are plain torch and run anywhere; ``flashinfer`` needs a CUDA GPU and a compiler.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from d2sd.attention import flashinfer
from d2sd.attention.cascade import attend as cascade
from d2sd.attention.dense import attend as dense
from d2sd.errors import InputError

KeyValue = tuple[Tensor, Tensor]


class Backend(Protocol):
    """The signature above."""

    def __call__(
        self,
        query: Tensor,
        prefix: KeyValue,
        block: KeyValue,
        block_mask: Tensor | None,
        scale: float,
        joined: KeyValue | None = None,
        seen: Tensor | None = None,
    ) -> Tensor: ...


BACKENDS: dict[str, Backend] = {"cascade": cascade, "dense": dense}  # those that run anywhere
NAMES = (*BACKENDS, "flashinfer")


def choose(name: str, device: torch.device, dtype: torch.dtype, head_dim: int) -> str:
    """The backend to use for a name or "auto": dense on a CPU, flashinfer on a GPU where it can be used, else cascade.

    Raises ``InputError`` where flashinfer is asked for and cannot be used.
    """
    if name == "auto":
        if device.type == "cpu":
            return "dense"
        return "cascade" if flashinfer.obstacle(device, dtype, head_dim) else "flashinfer"
    if name == "flashinfer" and (reason := flashinfer.obstacle(device, dtype, head_dim)):
        raise InputError(f"the attention backend flashinfer {reason}; use cascade, or auto to have it chosen")
    return name


def make_backend(name: str, fixed: bool = False) -> Backend:
    """A backend by its name, for one generation; ``fixed``: its passes have fixed shapes and may be captured."""
    return flashinfer.FlashInfer(fixed) if name == "flashinfer" else BACKENDS[name]
